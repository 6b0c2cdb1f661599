//! Index files as RocketMQ writes them, from the protocol's table and one key after
//! the other, without any code of the store.

/// A key that is indexed: hash, physical offset and store time of its record.
pub type Key = (i32, i64, i64);

/// `abs(hashCode(topic#key))`.
pub fn hash(topic: &str, key: &str) -> i32 {
    let text = format!("{topic}#{key}");
    let hash = text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    if hash == i32::MIN { 0 } else { hash.abs() }
}

/// The files that hold these keys, oldest first.
pub fn files(keys: &[Key], slots: usize, entries: usize) -> Vec<Vec<u8>> {
    keys.chunks(entries - 1)
        .map(|keys| file(keys, slots, entries))
        .collect()
}

fn file(keys: &[Key], slots: usize, entries: usize) -> Vec<u8> {
    let mut bytes = vec![0; 40 + slots * 4 + entries * 20];
    let begin = keys[0].2;
    let mut used = 0i32;
    for (index, &(hash, physical, time)) in keys.iter().enumerate() {
        let number = index as i32 + 1;
        let slot = 40 + hash as usize % slots * 4;
        let prev: [u8; 4] = bytes[slot..slot + 4].try_into().unwrap();
        used += i32::from(prev == [0; 4]);
        let seconds = ((time - begin) / 1000).clamp(0, i64::from(i32::MAX)) as i32;
        let at = 40 + slots * 4 + number as usize * 20;
        let parts = [
            &hash.to_be_bytes()[..],
            &physical.to_be_bytes(),
            &seconds.to_be_bytes(),
            &prev,
        ];
        bytes[at..at + 20].copy_from_slice(&parts.concat());
        bytes[slot..slot + 4].copy_from_slice(&number.to_be_bytes());
    }
    let last = keys[keys.len() - 1];
    let header = [
        &begin.to_be_bytes()[..],
        &last.2.to_be_bytes(),
        &keys[0].1.to_be_bytes(),
        &last.1.to_be_bytes(),
        &used.to_be_bytes(),
        &(keys.len() as i32 + 1).to_be_bytes(),
    ];
    bytes[..40].copy_from_slice(&header.concat());
    bytes
}

/// What is wrong with the files of an index folder, oldest first, which should hold
/// these keys and no others. Bytes behind the last entry are anybody's; the newest
/// time of a file that was repaired is right to the second.
pub fn compare(
    found: &[Vec<u8>],
    keys: &[Key],
    slots: usize,
    entries: usize,
) -> Result<(), String> {
    let expected = files(keys, slots, entries);
    if found.len() != expected.len() {
        return Err(format!(
            "{} files instead of {}",
            found.len(),
            expected.len()
        ));
    }
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let head = 40 + slots * 4;
        let word =
            |bytes: &[u8], at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let time = |bytes: &[u8]| i64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let what = |what: &str| Err(format!("file {number}: other {what}"));
        if found.len() != expected.len() {
            return what("length");
        }
        if word(found, 36) != word(expected, 36) {
            let (is, should) = (word(found, 36), word(expected, 36));
            return Err(format!("file {number}: {is} entries instead of {should}"));
        }
        let end = head + word(expected, 36) as usize * 20;
        if found[head + 20..end] != expected[head + 20..end] {
            return what("entries");
        }
        if found[40..head] != expected[40..head] {
            return what("slots");
        }
        if found[..8] != expected[..8] || found[16..40] != expected[16..40] {
            return what("header");
        }
        let begin = i64::from_be_bytes(expected[..8].try_into().unwrap());
        // What was stored in front of the first second counts as stored in it.
        let (is, should) = (time(found), time(expected).max(begin));
        if is.max(begin).abs_diff(should) > 1000 {
            return Err(format!(
                "file {number}: newest time {is} instead of {should}"
            ));
        }
    }
    Ok(())
}

#[test]
fn hashes_are_javas() {
    assert_eq!(hash("AaTopic", "Aa"), hash("AaTopic", "BB"));
    assert_eq!(hash("", "A"), 35 * 31 + 65);
}
