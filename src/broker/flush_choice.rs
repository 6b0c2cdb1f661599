//! How a broker under SYNC_FLUSH makes the device keep its bytes: from the profile of its
//! store, or from a probe at this start.

use super::start_error::{StartError, refused};
use crate::config::{FlushDiskType, Settings};
use crate::probe::flush_cost;
use crate::probe::profile::{IoProfile, ProfileError, WRITE_BYTES_DEFAULT};

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlushChoice {
    /// Under SYNC_FLUSH: whether a flush follows each write, instead of a write through.
    pub after_write: bool,
    /// Largest write to the log, in bytes.
    pub write_bytes_max: usize,
}

impl FlushChoice {
    /// Where nobody waits for the device.
    pub const DEFAULT: FlushChoice = FlushChoice {
        after_write: false,
        write_bytes_max: WRITE_BYTES_DEFAULT as usize,
    };
}

/// Chooses, and says in one line what was chosen and by which figures.
///
/// # Errors
/// Those of the file system of the store, where it has to be probed.
pub(super) fn choose(settings: &Settings) -> Result<FlushChoice, StartError> {
    if settings.flush_disk_type != FlushDiskType::Sync {
        return Ok(FlushChoice::DEFAULT);
    }
    let store = &settings.store_path_root_dir;
    match IoProfile::load(store) {
        Ok(profile) => {
            let choice = profile.choice;
            tracing::info!(
                write_through_us = choice.write_through_us as u64,
                write_and_flush_us = choice.write_and_flush_us as u64,
                chosen = name(choice.flush_after_write),
                write_bytes_max = choice.write_bytes,
                measured = profile.measured,
                from = %IoProfile::path(store).display(),
                "SYNC_FLUSH: time until the device keeps a write of 4 KiB"
            );
            return Ok(FlushChoice {
                after_write: choice.flush_after_write,
                write_bytes_max: choice.write_bytes as usize,
            });
        }
        Err(ProfileError::Missing) => {}
        Err(error) => tracing::warn!(
            "a profile is ignored, and the device probed instead: {error} \
             (`ringmq tune io` makes a new one)"
        ),
    }
    let cost = flush_cost(store).map_err(refused)?;
    tracing::info!(
        write_through_us = cost.write_through.as_micros() as u64,
        write_and_flush_us = cost.write_and_flush.as_micros() as u64,
        chosen = name(cost.prefers_flush()),
        write_bytes_max = FlushChoice::DEFAULT.write_bytes_max,
        from = "a probe at this start",
        "SYNC_FLUSH: time until the device keeps a write of 4 KiB"
    );
    Ok(FlushChoice {
        after_write: cost.prefers_flush(),
        ..FlushChoice::DEFAULT
    })
}

fn name(flush_after_write: bool) -> &'static str {
    if flush_after_write {
        "fdatasync"
    } else {
        "O_DSYNC"
    }
}
