//! What a thread's tasks may rely on.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{or, poll_once};
use io_uring::{opcode, types};

use super::*;

/// What takes longer is stuck.
const STUCK: Duration = Duration::from_secs(10);

fn run<T>(main: impl Future<Output = T>) -> T {
    let main = or(async { Some(main.await) }, async {
        sleep(STUCK).await;
        None
    });
    block_on(main).unwrap().expect("an end")
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A socket of this thread, and the other end of it.
fn pair() -> (Rc<Socket>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Socket::new(ours), theirs)
}

#[test]
fn sleeps_end_in_their_order_and_never_early() {
    let ended = Rc::new(RefCell::new(Vec::new()));
    let all = ended.clone();
    run(async move {
        let began = Instant::now();
        for millis in [30, 10, 20, 0] {
            let ended = ended.clone();
            spawn("a test's", async move {
                let time = Duration::from_millis(millis);
                sleep(time).await;
                assert!(began.elapsed() >= time);
                ended.borrow_mut().push(millis);
            });
        }
        sleep(Duration::from_millis(60)).await;
    });
    assert_eq!(*all.borrow(), [0, 10, 20, 30]);
}

#[test]
fn a_sleep_that_is_given_up_wakes_nobody() {
    run(async {
        for _ in 0..1000 {
            let _ = poll_once(sleep(Duration::from_secs(3600))).await;
        }
        ring::Reactor::with(|reactor| assert_eq!(reactor.timers.borrow().len(), 0));
    });
}

#[test]
fn a_thread_with_nothing_to_do_uses_no_processor() {
    let used = run(async {
        let began = cpu_time();
        sleep(Duration::from_millis(300)).await;
        cpu_time() - began
    });
    assert!(used < Duration::from_millis(30), "{used:?}");
}

#[test]
fn a_busy_task_keeps_neither_timers_nor_sockets_nor_threads_waiting() {
    let (in_time, of) = run(async {
        let (ours, mut theirs) = pair();
        let is_over = Rc::new(Cell::new(false));
        let over = is_over.clone();
        spawn("a test's", async move {
            while !over.get() {
                next_turn().await;
            }
        });
        let (sender, receiver) = flume::bounded(1);
        let (mut in_time, rounds) = (0, 20);
        for _ in 0..rounds {
            let began = Instant::now();
            sleep(Duration::from_millis(1)).await;
            theirs.write_all(b"x").unwrap();
            assert_eq!(ours.receive(&mut [0; 8]).await.unwrap(), 1);
            let sender = sender.clone();
            thread::spawn(move || sender.send(()).unwrap());
            receive(&receiver).await.unwrap();
            in_time += usize::from(began.elapsed() < Duration::from_millis(50));
        }
        is_over.set(true);
        (in_time, rounds)
    });
    // A machine that is busy with other things may take its time now and then.
    assert!(in_time > of / 2, "{in_time} of {of}");
}

#[test]
fn what_other_threads_send_arrives_whole_and_in_order() {
    const THREADS: usize = 4;
    const EACH: usize = 5000;
    run(async {
        // Senders and the receiver wait for each other: the channel is small.
        let (sender, receiver) = flume::bounded(8);
        for thread in 0..THREADS {
            let sender = sender.clone();
            thread::spawn(move || {
                for n in 0..EACH {
                    sender.send((thread, n)).unwrap();
                    if n % 500 == 0 {
                        // So that the receiver sleeps now and then.
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            });
        }
        drop(sender);
        let mut next = [0; THREADS];
        while let Ok((thread, n)) = receive(&receiver).await {
            assert_eq!(n, next[thread]);
            next[thread] += 1;
        }
        assert_eq!(next, [EACH; THREADS]);
    });
}

#[test]
fn two_threads_wake_each_other_without_an_end() {
    const ROUNDS: usize = 20_000;
    let (to, from) = (flume::bounded(1), flume::bounded(1));
    let (there, back) = (to.1, from.0);
    let other = thread::spawn(move || {
        run(async move {
            while let Ok(n) = receive::<usize>(&there).await {
                send(&back, n + 1).await.unwrap();
            }
        });
    });
    run(async move {
        for n in 0..ROUNDS {
            send(&to.0, n).await.unwrap();
            assert_eq!(receive(&from.1).await, Ok(n + 1));
        }
    });
    other.join().unwrap();
}

#[test]
fn the_helper_does_what_it_is_given_one_after_the_other() {
    let at_once = Arc::new(AtomicUsize::new(0));
    run(async move {
        let done = Rc::new(RefCell::new(Vec::new()));
        for n in 0..20 {
            let (done, at_once) = (done.clone(), at_once.clone());
            spawn("a test's", async move {
                let result = blocking(move || {
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                    thread::sleep(Duration::from_millis(1));
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    n * 2
                });
                let result = result.await;
                done.borrow_mut().push(result);
            });
        }
        blocking(|| ()).await;
        next_turn().await;
        assert_eq!(*done.borrow(), (0..20).map(|n| n * 2).collect::<Vec<_>>());
    });
}

#[test]
fn all_bytes_arrive_however_they_are_cut() {
    run(async {
        let (ours, mut theirs) = pair();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let sent = bytes.clone();
        let writer = thread::spawn(move || {
            for piece in sent.chunks(70_001) {
                theirs.write_all(piece).unwrap();
            }
            theirs.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            theirs.read_to_end(&mut back).unwrap();
            back
        });
        let (mut got, mut buffer) = (Vec::new(), vec![0; 4096]);
        loop {
            match ours.receive(&mut buffer).await.unwrap() {
                0 => break,
                n => got.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(got == bytes);
        // The peer reads only now and then; what does not fit waits.
        ours.send_all(&got).await.unwrap();
        ours.shut_down().unwrap();
        let back = blocking(move || writer.join().unwrap()).await;
        assert!(back == bytes);
    });
}

/// The end may be told together with the last bytes, and only once.
#[test]
fn the_end_is_seen_behind_the_last_bytes() {
    run(async {
        for _ in 0..200 {
            let (ours, mut theirs) = pair();
            theirs.write_all(b"last").unwrap();
            drop(theirs);
            next_turn().await;
            let mut buffer = [0; 64];
            assert_eq!(ours.receive(&mut buffer).await.unwrap(), 4);
            assert_eq!(ours.receive(&mut buffer).await.unwrap(), 0);
            assert_eq!(ours.receive(&mut buffer).await.unwrap(), 0);
        }
    });
}

#[test]
fn a_socket_that_is_dropped_is_closed_and_its_number_is_another_ones() {
    run(async {
        for round in 0..300 {
            let (ours, mut theirs) = pair();
            if round % 3 > 0 {
                let waits = ours.clone();
                // Watched, and given up before it has anything.
                let _ = poll_once(waits.receive(&mut [0; 8])).await;
            }
            if round % 3 > 1 {
                next_turn().await;
                sleep(Duration::from_micros(100)).await;
            }
            drop(ours);
            // The next one has its number: what is told of one is not told of the other.
            let (next, mut others) = pair();
            sleep(Duration::from_micros(100)).await;
            assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0, "closed");
            others.write_all(b"x").unwrap();
            assert_eq!(next.receive(&mut [0; 8]).await.unwrap(), 1);
        }
    });
}

#[test]
fn connecting_succeeds_or_says_why_not() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Socket::new(listener);
        let ours = connect(address).await.unwrap();
        let (theirs, peer) = accepting.accept().await.unwrap();
        let mut theirs = TcpStream::from(theirs);
        assert_eq!(peer.unwrap().ip(), address.ip());
        ours.send_all(b"here").await.unwrap();
        theirs.set_nonblocking(false).unwrap();
        let mut four = [0; 4];
        theirs.read_exact(&mut four).unwrap();
        assert_eq!(&four, b"here");
        drop(accepting);
        sleep(Duration::from_millis(1)).await;
        let refused = connect(address).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn many_sockets_are_accepted_and_served_at_once() {
    const CLIENTS: usize = 300;
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Socket::new(listener);
        let clients = thread::spawn(move || {
            let mut all: Vec<_> = (0..CLIENTS)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            for (n, client) in all.iter_mut().enumerate() {
                client.write_all(&(n as u32).to_be_bytes()).unwrap();
            }
            for (n, client) in all.iter_mut().enumerate() {
                let mut answer = [0; 4];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(u32::from_be_bytes(answer), n as u32 + 1);
            }
        });
        for _ in 0..CLIENTS {
            let (accepted, _) = accepting.accept().await.unwrap();
            spawn("a test's", async move {
                let socket = Socket::new(accepted);
                let mut number = [0; 4];
                assert_eq!(socket.receive(&mut number).await.unwrap(), 4);
                let answer = u32::from_be_bytes(number) + 1;
                socket.send_all(&answer.to_be_bytes()).await.unwrap();
            });
        }
        blocking(move || clients.join().unwrap()).await;
    });
}

/// As many as keep connecting.
#[test]
fn those_that_connect_do_not_come_before_everything_else() {
    let ticks = run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let connecting: Vec<_> = (0..2)
            .map(|_| {
                let is_over = is_over.clone();
                thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(TcpStream::connect(address));
                    }
                })
            })
            .collect();
        spawn("a test's", async move {
            let accepting = Socket::new(listener);
            loop {
                drop(accepting.accept().await);
            }
        });
        let (began, mut ticks) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_millis(300) {
            sleep(Duration::from_millis(1)).await;
            ticks += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        blocking(move || connecting.into_iter().for_each(|one| one.join().unwrap())).await;
        ticks
    });
    assert!(ticks > 30, "{ticks}");
}

#[test]
fn a_wait_for_room_that_is_given_up_keeps_no_socket() {
    run(async {
        let (ours, _theirs) = pair();
        let sending = or(
            async { ours.send_all(&vec![7; 64 << 20]).await.is_ok() },
            async {
                sleep(Duration::from_millis(20)).await;
                false
            },
        );
        assert!(!sending.await, "the peer reads nothing");
        let kept = Rc::downgrade(&ours);
        drop(ours);
        sleep(Duration::from_millis(5)).await;
        assert!(kept.upgrade().is_none());
    });
}

#[test]
fn files_are_read_and_written_by_more_operations_than_the_ring_has_room_for() {
    const COUNT: usize = 6000;
    let file = Rc::new(tempfile::tempfile().unwrap());
    let write = |file: &Rc<File>, n: usize| {
        let bytes: Box<[u8]> = (n as u64).to_be_bytes().into();
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), 8)
            .offset(n as u64 * 8)
            .build();
        // SAFETY: the entry names the bytes and the file: both are kept.
        unsafe { operate(entry, (bytes, file.clone())) }
    };
    let target = file.clone();
    run(async move {
        let all: Vec<_> = (0..COUNT).map(|n| write(&target, n)).collect();
        for (n, one) in all.into_iter().enumerate() {
            // Some are given up, and done all the same.
            if n % 7 > 0 {
                let (written, (bytes, _)) = one.await;
                assert_eq!(written.unwrap(), 8);
                assert_eq!(*bytes, (n as u64).to_be_bytes());
            }
        }
    });
    let mut bytes = Vec::new();
    let mut file = &*file;
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let expected: Vec<u8> = (0..COUNT as u64).flat_map(u64::to_be_bytes).collect();
    assert!(bytes == expected);
}

#[test]
fn an_operation_that_fails_says_why() {
    run(async {
        let entry = opcode::Read::new(types::Fd(-1), std::ptr::null_mut(), 0).build();
        // SAFETY: nothing is read from no file.
        let (result, ()) = unsafe { operate(entry, ()) }.await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn executors_are_pinned_and_their_helpers_are_not() {
    let cpus = allowed_cpus().unwrap();
    let barrier = Arc::new(Barrier::new(cpus.len()));
    let threads: Vec<_> = cpus
        .iter()
        .map(|&cpu| {
            let barrier = barrier.clone();
            spawn_executor("pinned", cpu, move || async move {
                let helper = blocking(|| allowed_cpus().unwrap()).await;
                barrier.wait();
                (allowed_cpus().unwrap(), helper)
            })
            .unwrap()
        })
        .collect();
    for (cpu, thread) in cpus.iter().zip(threads) {
        assert_eq!(thread.join().unwrap(), (vec![*cpu], cpus.clone()));
    }
}

#[test]
fn long_turns_are_counted_whatever_task_has_them() {
    let hold_up = |millis| thread::sleep(Duration::from_millis(millis));
    run(async {
        // Waits are none, nor are short turns one after the other. A machine that stands still
        // makes any turn long, though not time and again.
        let mut has_none = false;
        for _ in 0..20 {
            let before = long_turns();
            sleep(Duration::from_millis(30)).await;
            for _ in 0..5 {
                hold_up(3);
                next_turn().await;
            }
            has_none |= long_turns() == before;
        }
        assert!(has_none);
        let before = long_turns();
        spawn("one", async move {
            next_turn().await;
            hold_up(20);
            sleep(Duration::from_millis(1)).await;
            hold_up(20);
        });
        sleep(Duration::from_millis(100)).await;
        assert!(long_turns() >= before + 2);
        // A task that is spawned has its first turn within that of its maker.
        let before = long_turns();
        hold_up(6);
        spawn("two", async move { hold_up(6) });
        assert!(turn_began().elapsed() >= Duration::from_millis(12));
        next_turn().await;
        assert!(long_turns() > before);
    });
}

#[test]
fn of_those_with_much_to_do_one_goes_on_in_a_round() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        for busy in 0..3 {
            let order = order.clone();
            spawn("busy", async move {
                for _ in 0..4 {
                    round_of_its_own().await;
                    order.borrow_mut().push(Some(busy));
                }
            });
        }
        while order.borrow().iter().flatten().count() < 12 {
            order.borrow_mut().push(None);
            next_turn().await;
        }
        let order = order.borrow();
        assert!(
            !order.windows(2).any(|pair| pair[0].and(pair[1]).is_some()),
            "{order:?}"
        );
        // Once all wait nobody goes twice before another.
        let busy: Vec<_> = order.iter().flatten().skip(2).collect();
        assert!(busy.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
    });
}
