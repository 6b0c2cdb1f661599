//! Single histories that a random one rarely meets.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::life::{Checked, ensure, run};
use super::machine::{Cut, Faults, Machine, Outcome, World};
use super::model::{QUEUES, Spec};
use super::{Dice, Place, SEGMENT_BYTES, TAIL_BYTES};
use crate::reactor::{blocking, sleep, spawn};
use crate::store::checkpoint::{IndexVouched, Stored};
use crate::store::edge::{Edge, Files, Mode};
use crate::store::{
    AckLevel, Disk, ShardId, ShardStore, StoreHandle, StoreSettings, run_background, segment,
};

/// Every read, write and sync fails.
const BROKEN: Faults = Faults {
    io_error: 10_000,
    short_write: 0,
    slow: 0,
};

/// Everything takes half a second.
const SLOW: Faults = Faults {
    io_error: 0,
    short_write: 0,
    slow: 10_000,
};

fn open(place: &Place) -> Checked<StoreHandle> {
    let opened = StoreHandle::open(&place.dir, place.shard, place.settings.clone());
    Ok(opened.map_err(|error| error.to_string())?.0)
}

/// A clean stop while a round of queue writes waits for the disk loses no entry.
#[test]
fn a_stop_during_a_round_of_queue_writes_keeps_all_entries() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::make(Arc::new(Disk), dir.path(), ShardId(0), AckLevel::Written);
    let again = place.clone();
    let append = |store: &StoreHandle| {
        let mut spec = Spec::random(0, 10, &mut Dice::new(1));
        spec.sys_flag = 0;
        store.with(|store| {
            let index = store.make_queue(QUEUES[0].0, QUEUES[0].1);
            store
                .append(index, &[spec.parts()], 1, &mut Vec::new())
                .unwrap();
        });
    };
    run(move || async move {
        let store = open(&place)?;
        run_background(&store);
        append(&store);
        sleep(Duration::from_millis(200)).await;
        // The disk is slow: the round that begins meanwhile waits behind this.
        spawn(
            "a test's",
            blocking(|| std::thread::sleep(Duration::from_millis(400))),
        );
        sleep(Duration::from_millis(150)).await;
        append(&store);
        store.close().await.map_err(|error| error.to_string())?;
        Ok(())
    })
    .unwrap();
    run(move || async move {
        let store = open(&again)?;
        let next = store.with(|store| {
            let index = store.find_queue(QUEUES[0].0, QUEUES[0].1)?;
            Some(store.queue(index).next)
        });
        ensure!(next == Some(2), "{next:?} of 2 entries");
        Ok(())
    })
    .unwrap();
}

/// What the checkpoint vouches for of the index after the next loss of power.
fn index_after_power_loss(machine: &Machine) -> IndexVouched {
    let path = Path::new("/store/checkpoint");
    let stored = Stored::load(&*machine.files(), path).unwrap();
    stored.index(&[0xFF; 16], true, 0, u64::MAX)
}

/// Appends a message that has keys.
fn append_with_keys(store: &StoreHandle) {
    let mut dice = Dice::new(1);
    let specs = std::iter::repeat_with(|| Spec::random(0, 10, &mut dice));
    let spec = specs.take(99).find(|spec| !spec.key_hashes().is_empty());
    store.with(|store| {
        let index = store.make_queue(QUEUES[0].0, QUEUES[0].1);
        let parts = [spec.as_ref().unwrap().parts()];
        store.append(index, &parts, 1, &mut Vec::new()).unwrap();
    });
}

/// A life in `/store`, with the shard's loop.
fn life(machine: &Machine, seed: u64) -> (World, StoreHandle) {
    life_of(machine, seed, AckLevel::Durable, |_| ())
}

fn life_of(
    machine: &Machine,
    seed: u64,
    ack: AckLevel,
    change: impl FnOnce(&mut StoreSettings),
) -> (World, StoreHandle) {
    let dir = Path::new("/store");
    let mut place = Place::make(machine.files(), dir, ShardId(0), ack);
    change(&mut place.settings);
    let world = World::new(machine, seed);
    let edge = Rc::new(world.clone());
    let opened = StoreHandle::open_on(edge, dir, place.shard, place.settings);
    (world, opened.unwrap().0)
}

/// The device promises the index of a store where nothing happens any more, and a
/// process that ends before it has looked at the files keeps the promise.
#[test]
fn the_index_of_an_idle_store_is_promised_and_stays_so() {
    let machine = Machine::new(7);
    let (world, store) = life(&machine, 1);
    let edge = world.clone();
    let outcome = world.run(async move {
        run_background(&store);
        append_with_keys(&store);
        edge.sleep(Duration::from_secs(6)).await;
        store.with(|store| store.log().written())
    });
    let Outcome::Done(written) = outcome else {
        panic!("{outcome:?}")
    };
    machine.end(Cut::Kill);
    // Names are promised at the next start.
    machine.files().sync_dir(Path::new("/store")).unwrap();
    machine.end(Cut::Power);
    let promised = index_after_power_loss(&machine);
    let mark = promised.mark.expect("a mark");
    assert_eq!(
        (mark.position, mark, promised.intact),
        (written, promised.synced, false)
    );
    assert!(mark.file > 0 && mark.count > 1, "{mark:?}");
    let (world, store) = life(&machine, 2);
    let outcome = world.run(async move { store.close().await.is_ok() });
    assert!(matches!(outcome, Outcome::Done(true)), "{outcome:?}");
    machine.end(Cut::Power);
    assert_eq!(index_after_power_loss(&machine), promised);
}

/// A sync that failed may have lost pages that no later one brings to the device.
#[test]
fn nothing_is_promised_after_a_sync_that_failed() {
    let machine = Machine::new(7);
    let (world, store) = life(&machine, 1);
    let (edge, disk) = (world.clone(), machine.clone());
    let outcome = world.run(async move {
        run_background(&store);
        append_with_keys(&store);
        edge.sleep(Duration::from_secs(2)).await;
        disk.set_faults(BROKEN);
        edge.sleep(Duration::from_secs(4)).await;
        disk.set_faults(Faults::default());
        edge.sleep(Duration::from_secs(6)).await;
        store.with(|store| (store.log().written(), store.log().failure().is_some()))
    });
    machine.end(Cut::Kill);
    let path = Path::new("/store/checkpoint");
    let stored = Stored::load(&*machine.files(), path).unwrap();
    let Outcome::Done((_, false)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        stored.synced().position,
        0,
        "it is vouched for all the same"
    );
    assert_eq!(index_after_power_loss(&machine), IndexVouched::default());
}

/// Under ASYNC_FLUSH a device that takes long to flush is written to meanwhile.
#[test]
fn what_comes_while_the_device_flushes_is_written() {
    let machine = Machine::new(7);
    let (world, store) = life_of(&machine, 1, AckLevel::Written, |_| ());
    let (edge, disk) = (world.clone(), machine.clone());
    let outcome = world.run(async move {
        run_background(&store);
        append_with_keys(&store);
        edge.sleep(Duration::from_secs(2)).await;
        // From here a write takes half a second, and so does a flush.
        disk.set_faults(SLOW);
        append_with_keys(&store);
        let first = store.with(|store| store.log().written());
        edge.sleep(Duration::from_millis(600)).await;
        append_with_keys(&store);
        edge.sleep(Duration::from_millis(650)).await;
        let (flushed, durable, written) = store.with(|store| {
            let log = store.log();
            (log.flushed(), log.durable(), log.written())
        });
        (durable == first, flushed == written, written > first)
    });
    assert!(
        matches!(outcome, Outcome::Done((true, true, true))),
        "{outcome:?}"
    );
}

/// Under ASYNC_FLUSH nothing is acknowledged after a flush that failed, whatever is being
/// written then.
#[test]
fn a_flush_that_fails_is_the_end_of_the_log_at_once() {
    let machine = Machine::new(7);
    let (world, store) = life_of(&machine, 1, AckLevel::Written, |_| ());
    let (edge, disk) = (world.clone(), machine.clone());
    let outcome = world.run(async move {
        run_background(&store);
        append_with_keys(&store);
        edge.sleep(Duration::from_secs(2)).await;
        // A write, and the flush behind it, take half a second.
        disk.set_faults(SLOW);
        append_with_keys(&store);
        edge.sleep(Duration::from_millis(900)).await;
        append_with_keys(&store);
        edge.sleep(Duration::from_millis(50)).await;
        // The write of the third has begun; the flush for the second ends before it.
        disk.set_faults(BROKEN);
        edge.sleep(Duration::from_millis(150)).await;
        store.with(|store| {
            let log = store.log();
            let why = log.failure().unwrap_or("no failure").to_owned();
            (why, log.flushed() < log.written())
        })
    });
    let Outcome::Done((why, is_writing)) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(why.contains(": flush at byte "), "{why}");
    assert!(is_writing);
}

/// The interval may be changed while bytes wait for it.
#[test]
fn a_shorter_interval_holds_for_what_was_written_before() {
    let machine = Machine::new(7);
    let (world, store) = life_of(&machine, 1, AckLevel::Written, |settings| {
        settings.flush_interval_ms = 3_600_000;
    });
    let edge = world.clone();
    let outcome = world.run(async move {
        run_background(&store);
        append_with_keys(&store);
        edge.sleep(Duration::from_secs(60)).await;
        let durable = || store.with(|store| store.log().durable() == store.log().written());
        let before = durable();
        store.set_flush_interval(100);
        edge.sleep(Duration::from_secs(2)).await;
        (before, durable())
    });
    assert!(
        matches!(outcome, Outcome::Done((false, true))),
        "{outcome:?}"
    );
}

/// Under ASYNC_FLUSH a flush that has much to write holds the sends up behind it: it is asked
/// for before it is so much, however long the interval is.
#[test]
fn half_of_the_tail_is_not_left_without_a_promise() {
    let machine = Machine::new(7);
    let (world, store) = life_of(&machine, 1, AckLevel::Written, |settings| {
        settings.flush_interval_ms = 3_600_000;
    });
    let edge = world.clone();
    let outcome = world.run(async move {
        run_background(&store);
        edge.sleep(Duration::from_secs(2)).await;
        let mut most = 0;
        while store.with(|store| store.log().written()) < 4 * TAIL_BYTES as u64 {
            append_with_keys(&store);
            edge.sleep(Duration::from_millis(10)).await;
            let unsynced = |store: &ShardStore| store.log().flushed() - store.log().durable();
            most = most.max(store.with(|store| unsynced(store)));
        }
        most
    });
    let Outcome::Done(most) = outcome else {
        panic!("{outcome:?}")
    };
    let half = TAIL_BYTES as u64 / 2;
    assert!((half / 2..half + half / 2).contains(&most), "{most} bytes");
}

/// Under SYNC_FLUSH the blocks ahead of the log are written before they are needed, in the
/// first segment and in one that a start finds.
#[test]
fn what_lies_ahead_of_the_log_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::make(Arc::new(Disk), dir.path(), ShardId(0), AckLevel::Durable);
    let (again, cleared) = (place.clone(), place.clone());
    let filled = |place: Place| {
        run(move || async move {
            let store = open(&place)?;
            run_background(&store);
            let path = segment::path(&place.dir, place.shard, 0);
            let (ahead, size) = (SEGMENT_BYTES / 2, SEGMENT_BYTES);
            for _ in 0..1000 {
                sleep(Duration::from_millis(10)).await;
                let file = Disk.open(&path, Mode::Read);
                if file.is_ok_and(|file| file.unwritten(ahead).is_ok_and(|at| at == size)) {
                    store.close().await.map_err(|error| error.to_string())?;
                    return Ok(());
                }
            }
            Err("there are unwritten blocks after 10 s".to_owned())
        })
        .unwrap();
    };
    filled(place);
    let path = segment::path(&cleared.dir, cleared.shard, 0);
    let file = Disk.open(&path, Mode::Write).unwrap();
    file.clear(0, SEGMENT_BYTES).unwrap();
    filled(again);
}
