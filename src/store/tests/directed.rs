//! Single histories that a random one rarely meets.

use std::sync::Arc;
use std::time::Duration;

use glommio::timer::sleep;

use super::life::{Checked, ensure, run};
use super::model::{QUEUES, Spec};
use super::{Dice, Place};
use crate::store::{AckLevel, Disk, ShardId, StoreHandle, run_background};

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
        run_background(&store).await;
        append(&store);
        sleep(Duration::from_millis(200)).await;
        // The disk is slow: the round that begins meanwhile waits behind this.
        let slow =
            glommio::executor().spawn_blocking(|| std::thread::sleep(Duration::from_millis(400)));
        let slow = glommio::spawn_local(slow);
        sleep(Duration::from_millis(150)).await;
        append(&store);
        store.close().await.map_err(|error| error.to_string())?;
        slow.await;
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
