//! What another broker does to a store between two runs.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::life::{Checked, run};
use super::model::{QUEUES, Spec};
use super::{Dice, Place, QUEUE_FILE_BYTES};
use crate::store::{AckLevel, Disk, RecoveryReport, ShardId, StoreHandle, run_background};

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Kill,
}

/// Opens the store after a clean stop, appends a message for each body, and ends. The
/// report, and the queue's next offset.
fn go(dir: &Path, bodies: &'static [&'static [u8]], end: End) -> (RecoveryReport, u64) {
    let mut place = Place::make(Arc::new(Disk), dir, ShardId(0), AckLevel::Written);
    place.settings.after_crash = false;
    run(move || async move {
        let opened = StoreHandle::open(&place.dir, place.shard, place.settings.clone());
        let (store, report) = opened.map_err(|error| error.to_string())?;
        let next = store.with(|store| {
            let index = store.make_queue(QUEUES[0].0, QUEUES[0].1);
            for body in bodies {
                let mut spec = Spec::random(0, 10, &mut Dice::new(1));
                spec.sys_flag = 0;
                spec.body = body.to_vec();
                store
                    .append(index, &[spec.parts()], 1, &mut Vec::new())
                    .unwrap();
            }
            store.queue(index).next
        });
        // Without its background tasks what was appended is in the tail file alone.
        if end == End::Close {
            run_background(&store);
            store.close().await.map_err(|error| error.to_string())?;
        }
        Checked::Ok((report, next))
    })
    .unwrap()
}

fn segment(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("commitlog").join(format!("{:020}", 0))).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Writes the times of a broker that ran for a short while into the checkpoint.
fn sign(dir: &Path) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dir.join("checkpoint"))
        .unwrap();
    file.write_all_at(&1_800_000_000_000_i64.to_be_bytes(), 0)
        .unwrap();
    file.write_all_at(&[0; 8], 8).unwrap();
}

#[test]
fn what_another_broker_wrote_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let (mine, theirs) = (dir.path().join("mine"), dir.path().join("theirs"));
    go(&mine, &[b"first"], End::Close);
    copy(&mine, &theirs);
    // Killed with a message in the tail file alone; another broker goes on instead.
    go(&mine, &[b"second, killed"], End::Kill);
    go(&theirs, &[b"their second"], End::Close);
    for folder in ["commitlog", "consumequeue"] {
        copy(&theirs.join(folder), &mine.join(folder));
    }
    let (report, next) = go(&mine, &[], End::Close);
    assert_eq!((report.from_tail, next), (0, 2));
    assert!(segment(&mine) == segment(&theirs));
}

#[test]
fn what_was_killed_comes_back_where_another_broker_wrote_nothing() {
    let dir = tempfile::tempdir().unwrap();
    go(dir.path(), &[b"first"], End::Close);
    go(dir.path(), &[b"second"], End::Kill);
    let (report, next) = go(dir.path(), &[], End::Close);
    assert!(report.from_tail > 0);
    assert_eq!(next, 2);
}

#[test]
fn a_store_that_another_broker_closed_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (report, _) = go(dir.path(), &[b"first", b"second"], End::Close);
    assert_eq!(report.left_by, "nobody");
    sign(dir.path());
    let (report, next) = go(dir.path(), &[], End::Close);
    assert_eq!((report.left_by, report.scanned), ("another broker", 0));
    assert_eq!(next, 2);
    assert_eq!(go(dir.path(), &[], End::Close).0.left_by, "RingMQ");
}

#[test]
fn an_entry_without_its_message_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    go(dir.path(), &[b"first", b"second"], End::Close);
    sign(dir.path());
    let (topic, id) = QUEUES[0];
    let queue = dir.path().join(format!("consumequeue/{topic}/{id}"));
    let path = queue.join(format!("{:020}", 0));
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), QUEUE_FILE_BYTES);
    let mut first = [0; 20];
    file.read_exact_at(&mut first, 0).unwrap();
    file.write_all_at(&first, 40).unwrap();
    let (_, next) = go(dir.path(), &[], End::Close);
    assert_eq!(next, 2);
}
