//! What moves the log to the device where senders wait for its promise (SYNC_FLUSH).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::commit_log::FlushPlan;
use super::edge::{Local, LogFile, LogMode};
use super::group::{Begin, Group};
use super::handle::Shared;
use super::log_writer::{Doing, LogWriter};
use super::prepare::prepare_segment;

/// A write under way, to the device's promise.
struct Flight {
    start: u64,
    end: u64,
    began: Duration,
    work: Local<'static, Ended>,
    ended: Option<Ended>,
}

type Ended = Result<(), (Doing, io::Error)>;

/// Writes what arrives to the segments: what comes during a write forms the next one
/// ([`Group`]). The promise comes with the write, or with a flush after it where that takes
/// less time. What is written is durable in order, whichever write ends first.
pub(super) async fn flush_awaited(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let mode = match settings.flush_after_write {
        true => LogMode::Write,
        false => LogMode::WriteThrough,
    };
    let mut writer = LogWriter::new(shared, mode);
    let mut group = Group::new(settings.flush_bytes_max);
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let mut has_waited = false;
    loop {
        prepare_segment(shared);
        let begin = {
            let mut state = shared.state.borrow_mut();
            state.worth_a_write = group.worth();
            let is_last = has_waited || shared.closing.get();
            match group.begin(state.log.waiting(), flights.len()) {
                Begin::After(_) if is_last => Begin::Now { whole: false },
                begin => begin,
            }
        };
        has_waited = false;
        let plan = match begin {
            Begin::Now { whole } => {
                let log = &shared.state.borrow().log;
                log.next_flush(settings.flush_bytes_max, whole)
            }
            _ => None,
        };
        if let Some(plan) = plan {
            let file = match writer.segment(&plan).await {
                Ok(file) => file,
                Err(end) if end.is_break() => return,
                Err(_) => continue,
            };
            flights.push_back(Flight::new(shared, file, &plan, settings.flush_after_write));
            if !poll_flights(&mut flights).await {
                continue;
            }
        } else {
            let patience = match begin {
                Begin::After(patience) => Some(patience),
                _ => None,
            };
            let news = group.has_place(flights.len());
            has_waited = wait(shared, &mut flights, news, patience).await;
        }
        if land(shared, &mut writer, &mut group, &mut flights)
            .await
            .is_break()
        {
            return;
        }
    }
}

impl Flight {
    /// The write of a plan. It begins with the first poll.
    fn new(shared: &Shared, file: Rc<dyn LogFile>, plan: &FlushPlan, flush: bool) -> Flight {
        let blocks = {
            let mut state = shared.state.borrow_mut();
            state.log.begin(plan);
            state.log.blocks(plan)
        };
        let at = plan.start - plan.segment;
        let work = async move {
            let write = file.write(at, blocks);
            write.await.map_err(|error| (Doing::Write, error))?;
            match flush {
                true => file.sync().await.map_err(|error| (Doing::Flush, error)),
                false => Ok(()),
            }
        };
        Flight {
            start: plan.start,
            end: plan.end,
            began: shared.edge.now(),
            work: Box::pin(work),
            ended: None,
        }
    }
}

/// Takes the flights that have ended, as far as none is under way in front of them: what they
/// wrote is durable.
async fn land(
    shared: &Shared,
    writer: &mut LogWriter<'_>,
    group: &mut Group,
    flights: &mut VecDeque<Flight>,
) -> ControlFlow<()> {
    let has_failed = |flight: &Flight| matches!(flight.ended, Some(Err(_)));
    if flights.iter().any(has_failed) {
        // What is written again, or never, is not under way meanwhile.
        for flight in flights.iter_mut().filter(|flight| flight.ended.is_none()) {
            flight.ended = Some((&mut flight.work).await);
        }
    }
    if let Some(which) = final_error(flights.iter().map(|flight| &flight.ended)) {
        let start = flights[which].start;
        if let Some(Err((doing, error))) = flights[which].ended.take() {
            return writer.failed(doing, start, &error).await;
        }
    }
    while let Some(ended) = flights.front_mut().and_then(|flight| flight.ended.take()) {
        let flight = flights.pop_front().expect("the one that has ended");
        if let Err((doing, error)) = ended {
            flights.clear();
            return writer.failed(doing, flight.start, &error).await;
        }
        writer.wrote(flight.end);
        let mut state = shared.state.borrow_mut();
        let bytes = flight.end - state.log.durable();
        let others = state.log.written() - flight.end;
        group.written(bytes, others, shared.edge.now() - flight.began);
        state.log.set_durable(flight.end);
        state.show_durable();
        drop(state);
        shared.progress.notify();
    }
    ControlFlow::Continue(())
}

/// Which of the flights ended with an error that is final. It is so for all of them: a flush
/// that fails may be one for the bytes of another, whose own flush then says nothing of it.
fn final_error<'a>(ended: impl IntoIterator<Item = &'a Option<Ended>>) -> Option<usize> {
    ended.into_iter().position(|ended| match ended {
        Some(Err((doing, error))) => !doing.is_passing(error),
        _ => false,
    })
}

/// Moves the flights on; whether one has ended.
async fn poll_flights(flights: &mut VecDeque<Flight>) -> bool {
    poll_fn(|cx| Poll::Ready(moved_on(flights, cx))).await
}

fn moved_on(flights: &mut VecDeque<Flight>, cx: &mut Context<'_>) -> bool {
    let mut has_ended = false;
    for flight in flights {
        if flight.ended.is_none() {
            if let Poll::Ready(ended) = flight.work.as_mut().poll(cx) {
                flight.ended = Some(ended);
                has_ended = true;
            }
        }
    }
    has_ended
}

/// Waits for the end of a flight, or for `news` that more has come, for as long as it has
/// `patience`. Whether it ran out.
async fn wait(
    shared: &Shared,
    flights: &mut VecDeque<Flight>,
    news: bool,
    patience: Option<Duration>,
) -> bool {
    let mut work = pin!(shared.work.wait());
    let mut pause = patience.map(|patience| shared.edge.sleep(patience));
    poll_fn(|cx| {
        if moved_on(flights, cx) || (news && work.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(false);
        }
        match &mut pause {
            Some(pause) => pause.as_mut().poll(cx).map(|()| true),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_error_is_one_of_all_flights_and_want_of_space_is_none() {
        let error = |doing, number| Some(Err((doing, io::Error::from_raw_os_error(number))));
        let full = || error(Doing::Write, libc::ENOSPC);
        for (ended, which) in [
            ([None, None], None),
            ([Some(Ok(())), None], None),
            ([Some(Ok(())), error(Doing::Flush, libc::EIO)], Some(1)),
            ([None, error(Doing::Write, libc::EIO)], Some(1)),
            ([full(), error(Doing::Flush, libc::EIO)], Some(1)),
            ([error(Doing::Flush, libc::ENOSPC), full()], Some(0)),
            ([Some(Ok(())), full()], None),
            ([full(), full()], None),
        ] {
            assert_eq!(final_error(&ended), which, "{ended:?}");
        }
    }
}
