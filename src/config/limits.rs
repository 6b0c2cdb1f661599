//! Bounds of the settings, each once. What happens at a bound stands beside it.
//!
//! A value outside is refused when the process starts, or when it is asked to change, with the
//! key, the value and the range. Bounds that depend on each other are asserted here.

use crate::wire::frame::FRAME_BYTES_MAX;

/// Bytes of a message record beside its body, at most: fixed fields, IPv6 hosts, the longest
/// topic and the longest properties (`MessageExtEncoder`), rounded up.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 64 * 1024;

/// Largest value of `maxMessageSize`, in bytes: a message and its header must fit one frame.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - 2 * RECORD_OVERHEAD_BYTES_MAX;

/// Smallest value of `maxMessageSize`, in bytes.
pub const MESSAGE_BYTES_MIN: usize = 1024;

/// Largest value of `maxTransferBytesOnMessageInMemory`, in bytes: a pull's answer must fit one
/// frame.
pub const TRANSFER_BYTES_MAX: usize = FRAME_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX;

/// Smallest value of `maxTransferBytesOnMessageInMemory`, in bytes. One message is returned
/// whatever its size.
pub const TRANSFER_BYTES_MIN: usize = 4096;

/// Largest value of `maxTransferCountOnMessageInMemory`, in messages.
pub const TRANSFER_COUNT_MAX: u32 = 65_536;

/// Block that direct I/O is aligned to, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Memory of one shard for direct I/O through glommio, in bytes, the least that it takes: nothing
/// is done through it. Locked, three times over, where the limit of that allows.
pub const IO_MEMORY_BYTES: usize = 64 * 1024;

/// Largest limit of a store, in bytes: all that its physical offsets can count.
pub const STORE_BYTES_MAX: u64 = i64::MAX as u64;

/// Smallest CommitLog segment, in bytes.
pub const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;

/// Largest CommitLog segment, in bytes: RocketMQ keeps the size in a Java `int`.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// Bytes of one entry of a ConsumeQueue (`ConsumeQueue.CQ_STORE_UNIT_SIZE`).
pub const QUEUE_ENTRY_BYTES: u64 = 20;

/// Smallest ConsumeQueue file, in bytes.
pub const QUEUE_FILE_BYTES_MIN: u64 = 100 * QUEUE_ENTRY_BYTES;

/// Largest ConsumeQueue file, in bytes: RocketMQ keeps the size in a Java `int`.
pub const QUEUE_FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// Smallest tail file of one shard, in bytes.
pub const TAIL_FILE_BYTES_MIN: usize = 8 * 1024 * 1024;

/// Largest tail file of one shard, in bytes.
pub const TAIL_FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Tail file of one shard unless set, in bytes.
pub const TAIL_FILE_BYTES_DEFAULT: usize = 16 * 1024 * 1024;

/// `maxMessageSize` unless set, in bytes.
pub const MESSAGE_BYTES_DEFAULT: usize = 4 * 1024 * 1024;

/// Most shards of one process. The physical offset has room for 32,767.
pub const SHARDS_MAX: u16 = 1024;

/// Distance between the ports of two neighbouring shards under `routeMode=perShard`. Wide
/// enough that the ports RocketMQ has beside a broker's, `listenPort` - 2 and + 1, are
/// nobody else's.
pub const SHARD_PORT_STEP: u16 = 10;

/// Most connections of one process that `connectionsMax` may allow. A connection above the
/// value is closed as soon as it is accepted.
pub const CONNECTIONS_MAX: u32 = 1_000_000;

/// File descriptors beside connections: segments, queue files, rings, listeners.
pub const FILES_BESIDE_CONNECTIONS: u64 = 4096;

/// Most read or write queues of one topic on this broker (`defaultTopicQueueNums`).
pub const TOPIC_QUEUES_MAX: u32 = 65_536;

/// Most delay levels in `messageDelayLevel`.
pub const DELAY_LEVELS_MAX: usize = 256;

/// Longest delay of one level, in milliseconds: 400 days.
pub const DELAY_MS_MAX: u64 = 400 * 24 * 3600 * 1000;

/// Most nameservers in `namesrvAddr`.
pub const NAMESERVERS_MAX: usize = 64;

/// Longest broker or cluster name, in bytes.
pub const NAME_BYTES_MAX: usize = 127;

/// Longest interval or timeout of a setting, in milliseconds: one day.
pub const INTERVAL_MS_MAX: u64 = 24 * 3600 * 1000;

/// Default of `busyPollMicros`, in microseconds: longest time that a shard with nothing to do
/// polls before it sleeps, where a processor is left without a shard. A little more than what a
/// client on the same machine takes from an answer to its next request; to sleep and be woken
/// costs about as much processor time.
pub const BUSY_POLL_MICROS_DEFAULT: u64 = 50;

/// Largest `busyPollMicros`, in microseconds.
pub const BUSY_POLL_MICROS_MAX: u64 = 1000;

/// Bounds of `registerNameServerPeriod`, in milliseconds. Values outside are moved to the
/// bound, as `BrokerController` does.
pub const REGISTER_PERIOD_MS: (u64, u64) = (10_000, 60_000);

/// Largest properties text that is read from a file or a request, in bytes. Longer ones are
/// refused.
pub const PROPERTIES_BYTES_MAX: usize = 1024 * 1024;

const _: () = {
    assert!(MESSAGE_BYTES_DEFAULT <= MESSAGE_BYTES_MAX);
    assert!(MESSAGE_BYTES_MIN < MESSAGE_BYTES_MAX);
    // What is sent must fit the answer of a pull.
    assert!(MESSAGE_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX <= TRANSFER_BYTES_MAX);
    // The defaults must agree with each other: a record fits the tail file and a segment.
    assert!(MESSAGE_BYTES_DEFAULT + RECORD_OVERHEAD_BYTES_MAX <= TAIL_FILE_BYTES_MIN);
    assert!(TAIL_FILE_BYTES_MIN.is_power_of_two() && TAIL_FILE_BYTES_MAX.is_power_of_two());
    assert!(TAIL_FILE_BYTES_DEFAULT.is_power_of_two());
    assert!(SEGMENT_BYTES_MIN % BLOCK_BYTES == 0);
    assert!(QUEUE_FILE_BYTES_MIN % QUEUE_ENTRY_BYTES == 0);
    // A physical offset is `shard << 48 | position` and not negative.
    assert!((SHARDS_MAX as u64) <= 1 << 15);
    assert!(REGISTER_PERIOD_MS.0 < REGISTER_PERIOD_MS.1);
};
