//! Message records as a client reads them: decoded here on their own, field by field,
//! so that the tests do not trust the code that wrote them.

use std::collections::BTreeMap;

/// A message as it came out of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub magic: u32,
    pub body_crc: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: Vec<u8>,
    pub store_timestamp: i64,
    pub store_host: Vec<u8>,
    pub reconsume_times: i32,
    pub prepared_offset: i64,
    pub body: Vec<u8>,
    pub topic: String,
    pub properties: BTreeMap<String, String>,
    pub size: usize,
}

impl Record {
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// The id that the broker gives the message.
    pub fn offset_id(&self) -> String {
        let bytes = self
            .store_host
            .iter()
            .copied()
            .chain(self.physical_offset.to_be_bytes());
        bytes.map(|byte| format!("{byte:02X}")).collect()
    }
}

/// Decodes the body of a pull.
pub fn records(mut bytes: &[u8]) -> Vec<Record> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let record = decode(bytes);
        bytes = &bytes[record.size..];
        all.push(record);
    }
    all
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    fn short(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }
}

fn decode(bytes: &[u8]) -> Record {
    let size = i32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    let mut r = Reader(&bytes[4..size]);
    let magic = r.int() as u32;
    assert!(
        matches!(magic, 0xDAA3_20A7 | 0xDAA3_20AB),
        "magic {magic:#x}"
    );
    let body_crc = r.int() as u32;
    let (queue_id, flag) = (r.int(), r.int());
    let (queue_offset, physical_offset) = (r.long(), r.long());
    let sys_flag = r.int();
    let host = |bit: i32| if sys_flag & bit == 0 { 8 } else { 20 };
    let born_timestamp = r.long();
    let born_host = r.take(host(0x10)).to_vec();
    let store_timestamp = r.long();
    let store_host = r.take(host(0x20)).to_vec();
    let reconsume_times = r.int();
    let prepared_offset = r.long();
    let len = r.int() as usize;
    let body = r.take(len).to_vec();
    assert_eq!(body_crc, crc32fast::hash(&body) & 0x7fff_ffff, "body CRC");
    let len = if magic == 0xDAA3_20AB {
        r.short() as usize
    } else {
        r.take(1)[0] as usize
    };
    let topic = String::from_utf8(r.take(len).to_vec()).expect("UTF-8");
    let len = r.short() as usize;
    let text = String::from_utf8(r.take(len).to_vec()).expect("UTF-8");
    assert!(r.0.is_empty(), "{} bytes behind the properties", r.0.len());
    let pairs = text
        .split('\u{2}')
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let (name, value) = entry.split_once('\u{1}').expect("name and value");
            (name.to_owned(), value.to_owned())
        });
    Record {
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        topic,
        properties: pairs.collect(),
        size,
    }
}
