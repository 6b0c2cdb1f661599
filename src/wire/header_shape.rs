//! Headers like the ones before, read without taking them apart.
//!
//! One sender's requests of one kind differ in few places: the opaque, a queue, a time,
//! the properties. A [`Shape`] is the text of one header with those places marked. A
//! header that is the same text between them has the same meaning, as what stands in them
//! is read by the rules of the general way. Any other header is read in the general way,
//! and the shape learns from it.

use std::cell::OnceCell;

use super::header::{Fixed, HeaderError, Scratch, Span};
use super::header_json::{self, Reader};
use super::send_shape::SendShape;

/// Shapes that a shard keeps. Senders that share one push each other out.
const SHAPES: usize = 256;

/// Headers that a place does not recognise, one after the other, before it learns from few:
/// those who share it are too different.
const MISSES_MAX: u32 = 16;

/// Of so many headers it then learns from one.
const LEARN_EVERY: u32 = 64;

/// Longest header that is kept as a shape, in bytes.
const BYTES_MAX: usize = 2048;

/// The shapes of many senders.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    shapes: Vec<Shape>,
}

impl Shapes {
    /// The place of the shape for headers of `sender` that begin like `bytes`: JSON headers
    /// of Java and Go begin with their code.
    fn place(&mut self, sender: usize, bytes: &[u8]) -> usize {
        const KIND: usize = 12;
        let kind = &bytes[..bytes.len().min(KIND)];
        let kind = kind.iter().fold(0, |sum: usize, &byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        if self.shapes.is_empty() {
            self.shapes.resize_with(SHAPES, Shape::default);
        }
        sender.wrapping_mul(7).wrapping_add(kind) % SHAPES
    }

    /// The shape at a place that [`decode`] gave.
    pub fn at(&self, place: usize) -> &Shape {
        &self.shapes[place]
    }
}

/// What a header says in front of its ext fields.
pub(super) struct Decoded {
    pub fixed: Fixed,
    pub remark: Option<Span>,
    /// Place of the shape that it has: its ext fields are those of the shape, and the scratch
    /// buffer has the values of those that vary. Without a shape it has all fields.
    pub shape: Option<usize>,
}

/// Reads a JSON header of `sender`. The result means what that of [`header_json::decode`] does.
pub(super) fn decode(
    bytes: &[u8],
    sender: usize,
    scratch: &mut Scratch,
) -> Result<Decoded, HeaderError> {
    let mut shapes = std::mem::take(&mut scratch.shapes);
    let place = shapes.place(sender, bytes);
    let decoded = shapes.shapes[place].decode(bytes, scratch);
    scratch.shapes = shapes;
    decoded.map(|(fixed, remark, has_shape)| Decoded {
        fixed,
        remark,
        shape: has_shape.then_some(place),
    })
}

/// One header, and where the next may differ from it. Empty: nothing is known.
#[derive(Debug, Default)]
pub(super) struct Shape {
    bytes: Vec<u8>,
    fixed: Fixed,
    /// An empty remark is part of it.
    has_remark: bool,
    /// Headers of another shape since the last of this one.
    misses: u32,
    /// The digits of the opaque.
    opaque: Span,
    /// The opaque stands in front of all ext fields.
    opaque_first: bool,
    fields: Vec<Field>,
    /// Of the fields that vary, the values.
    varying: Vec<Span>,
    /// What a send of this shape says, but for what varies.
    pub send: OnceCell<SendShape>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: Span,
    /// The text between the quotes, as it is written.
    value: Span,
    varies: bool,
}

/// How far a header has been compared with a shape.
struct Walk<'a> {
    shape: &'a [u8],
    /// Compared so far, of the shape.
    done: usize,
    reader: Reader<'a>,
}

impl Walk<'_> {
    /// Takes what the shape has up to `to`, if the header has the same.
    fn same(&mut self, to: usize) -> Option<()> {
        let expected = self.shape.get(self.done..to)?;
        let found = self.reader.rest().get(..expected.len())?;
        if found != expected {
            return None;
        }
        self.reader.at += expected.len();
        self.done = to;
        Some(())
    }

    fn opaque(&mut self, at: Span) -> Option<i32> {
        self.same(at.start as usize)?;
        self.done = at.end();
        self.reader.digits().ok()
    }
}

impl Shape {
    /// Reads a header, by the shape if it has this one, else in the general way; whether it
    /// has the shape.
    fn decode(
        &mut self,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(Fixed, Option<Span>, bool), HeaderError> {
        if let Some(fixed) = self.read(bytes, scratch) {
            self.misses = 0;
            // Go writes an empty one.
            return Ok((fixed, self.has_remark.then(Span::default), true));
        }
        scratch.clear();
        let decoded = header_json::decode_with_opaque(bytes, scratch);
        self.misses = self.misses.wrapping_add(1);
        if self.misses <= MISSES_MAX || self.misses % LEARN_EVERY == 0 {
            match &decoded {
                Ok((fixed, remark, opaque)) if remark.is_none_or(|remark| remark.len == 0) => {
                    self.has_remark = remark.is_some();
                    self.learn(bytes, *fixed, *opaque, scratch);
                }
                _ => self.forget(),
            }
        }
        decoded.map(|(fixed, remark, _)| (fixed, remark, false))
    }

    /// The ext fields, as (name, value); no value: it varies.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.fields.iter().map(|field| {
            let value = (!field.varies).then(|| &self.bytes[field.value.range()]);
            (&self.bytes[field.name.range()], value)
        })
    }

    fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Reads a header of this shape; `None` for any other.
    fn read(&self, bytes: &[u8], scratch: &mut Scratch) -> Option<Fixed> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut walk = Walk {
            shape: &self.bytes,
            done: 0,
            reader: Reader { bytes, at: 0 },
        };
        let mut fixed = self.fixed;
        if self.opaque_first {
            fixed.opaque = walk.opaque(self.opaque)?;
        }
        for value in &self.varying {
            walk.same(value.start as usize)?;
            walk.done = value.end() + 1;
            walk.reader.at -= 1;
            let value = walk.reader.string(scratch).ok()?;
            scratch.fields.push((Span::default(), value));
        }
        if !self.opaque_first {
            fixed.opaque = walk.opaque(self.opaque)?;
        }
        walk.same(self.bytes.len())?;
        walk.reader.rest().is_empty().then_some(fixed)
    }

    /// Becomes the shape of a header that was read in the general way. Where it has the
    /// fields of the shape so far, what differs is marked.
    fn learn(&mut self, bytes: &[u8], fixed: Fixed, opaque: Option<Span>, scratch: &Scratch) {
        let opaque = opaque.filter(|_| bytes.len() <= BYTES_MAX);
        let fields = opaque.and_then(|_| self.fields_of(bytes, scratch));
        let (Some(opaque), Some(fields)) = (opaque, fields) else {
            return self.forget();
        };
        let first = fields.first().map_or(usize::MAX, |f| f.name.start as usize);
        let last = fields.last().map_or(0, |f| f.value.end());
        self.opaque_first = opaque.end() <= first;
        if !self.opaque_first && (opaque.start as usize) < last {
            return self.forget();
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        let varying = fields.iter().filter(|field| field.varies);
        self.varying.clear();
        self.varying.extend(varying.map(|field| field.value));
        (self.fixed, self.opaque, self.fields) = (fixed, opaque, fields);
        self.send = OnceCell::new();
    }

    /// The fields of a header, if all are in order, quoted and there once, with names and,
    /// but for those that vary, values without escapes.
    fn fields_of(&self, bytes: &[u8], scratch: &Scratch) -> Option<Vec<Field>> {
        let mut fields = Vec::with_capacity(scratch.fields.len());
        let mut behind = 0;
        for (at, &(name, value)) in scratch.fields.iter().enumerate() {
            let is_there = |field: &Field| bytes[field.name.range()] == bytes[name.range()];
            if name.unescaped || (name.start as usize) < behind || fields.iter().any(is_there) {
                return None;
            }
            let mut reader = Reader {
                bytes,
                at: name.end() + 1,
            };
            reader.expect(b':', "expected :").ok()?;
            if reader.peek().ok()? != b'"' {
                return None;
            }
            let start = reader.at + 1;
            reader.string(&mut Scratch::default()).ok()?;
            let raw = Span::plain(start, reader.at - 1);
            let known = (self.fields.get(at)).filter(|_| !self.bytes.is_empty());
            let varies = value.unescaped
                || known.is_some_and(|known| {
                    self.bytes.get(known.name.range()) == bytes.get(name.range())
                        && (known.varies
                            || self.bytes.get(known.value.range()) != bytes.get(raw.range()))
                });
            behind = reader.at;
            fields.push(Field {
                name,
                value: raw,
                varies,
            });
        }
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{self, Frame, Serialize, Split};
    use super::super::header::{Header, encode};
    use super::super::send_header::SendHeader;
    use super::*;
    use proptest::prelude::*;

    type Read = Result<(Fixed, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>), HeaderError>;

    fn owned(header: Result<Header<'_>, HeaderError>) -> Read {
        let header = header?;
        let fields = header.fields().map(|(k, v)| (k.to_vec(), v.to_vec()));
        let remark = header.remark().map(<[u8]>::to_vec);
        Ok((header.fixed, remark, fields.collect()))
    }

    /// Reads headers of one sender, each in both ways.
    fn check<T: AsRef<[u8]>>(headers: &[T]) {
        let mut scratch = Scratch::default();
        for header in headers {
            let header = header.as_ref();
            let frame = Frame {
                serialize: Serialize::Json,
                header,
                body: &[],
            };
            let mut plain_scratch = Scratch::default();
            let plain = Header::decode(&frame, &mut plain_scratch);
            let shaped = Header::decode_from(&frame, 5, &mut scratch);
            let text = String::from_utf8_lossy(header);
            if let (Ok(plain), Ok(shaped)) = (&plain, &shaped) {
                assert_eq!(
                    SendHeader::parse(shaped),
                    SendHeader::parse(plain),
                    "{text}"
                );
            }
            assert_eq!(owned(shaped), owned(plain), "{text}");
        }
    }

    fn hits(headers: &[String]) -> usize {
        let mut scratch = Scratch::default();
        let mut shape = Shape::default();
        let mut hits = 0;
        for header in headers {
            let bytes = header.as_bytes();
            scratch.clear();
            if shape.read(bytes, &mut scratch).is_some() {
                hits += 1;
                continue;
            }
            scratch.clear();
            let (fixed, _, opaque) = header_json::decode_with_opaque(bytes, &mut scratch).unwrap();
            shape.learn(bytes, fixed, opaque, &scratch);
        }
        hits
    }

    fn send(opaque: i32, queue: i32, properties: &str) -> String {
        format!(
            r#"{{"code":310,"extFields":{{"a":"group","b":"topic","e":"{queue}","i":"{properties}"}},"flag":0,"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":477}}"#
        )
    }

    #[test]
    fn the_third_of_a_kind_is_recognised_and_all_that_follow() {
        let headers: Vec<String> = (0..100)
            .map(|n| send(n * 97 - 50, n % 8, &format!("U\\u0001{n}\\u0002é")))
            .collect();
        assert!(hits(&headers) >= 97, "{}", hits(&headers));
        check(&headers);
        let go: Vec<String> = (0..20)
            .map(|n| {
                format!(
                    r#"{{"code":310,"language":"GO","version":317,"opaque":{n},"flag":0,"remark":"","extFields":{{"a":"g","e":"{n}"}}}}"#
                )
            })
            .collect();
        assert!(hits(&go) >= 18);
        check(&go);
        let other_order: Vec<String> = (0..20)
            .map(|n| format!(r#" {{ "opaque" : "{n}" , "extFields":{{ "k" : "{n}"}},"code":1}} "#))
            .collect();
        assert!(hits(&other_order) >= 18);
        check(&other_order);
    }

    #[test]
    fn what_only_looks_alike_is_read_for_itself() {
        let one = send(1, 2, "x");
        let headers = [
            one.clone(),
            one.replace("310", "311"),
            one.replace("\"flag\":0", "\"flag\":2"),
            one.replace(r#""b":"topic""#, r#""b":null"#),
            one.replace(r#""e":"2""#, r#""e":2"#),
            one.replace(r#""opaque":1"#, r#""opaque":1x"#),
            one.replace(r#""opaque":1"#, r#""opaque":"1""#),
            one.replace(r#""opaque":1"#, r#""opaque":99999999999"#),
            one.replace(r#""opaque":1"#, r#""opaque":null"#),
            one.replace(r#""opaque":1"#, r#""opaque":1,"remark":"r""#),
            one.replace(r#""opaque":1"#, r#""opaque":1,"remark":"""#),
            one.replace(r#""opaque":1"#, r#""opaque":1,"remark":null"#),
            one.replace("\"x\"", "\"x"),
            one.replace("\"x\"", "\"\\q\""),
            one.replace("\"x\"", "\"\\\"\",\"z\":\"\\\\\""),
            one[..one.len() - 1].to_owned(),
            format!("{one}}}"),
            format!("{one} "),
        ];
        for header in &headers {
            check(&[&one, &send(3, 4, "y"), header, header, &one, header]);
        }
        check(&headers);
        check(&[
            r#"{"extFields":{"a":"1"},"opaque":5,"extFields":{"a":"2"}}"#,
            r#"{"extFields":{"a":"3"},"opaque":6,"extFields":{"a":"4"}}"#,
            r#"{"opaque":5,"opaque":7,"extFields":{"a":"2","a":"3"}}"#,
            r#"{"opaque":5,"opaque":8,"extFields":{"a":"9","a":"3"}}"#,
            r#"{"opaque":6,"opaque":8,"extFields":{"a":"9","a":"3"}}"#,
            r#"{}"#,
            r#"{}"#,
        ]);
    }

    proptest! {
        #[test]
        fn a_header_means_the_same_whatever_came_before(
            headers in prop::collection::vec((
                prop_oneof![Just(310), Just(11)], 0i32..3, any::<i32>(),
                prop::collection::vec((
                    prop_oneof![Just("a"), Just("b"), Just("\""), Just("é")],
                    prop_oneof![Just("1"), Just(""), Just("\u{1}\u{2}"), Just("\\\""), Just("日本"), Just("x")],
                ), 0..5),
                prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            ), 1..12),
        ) {
            let texts: Vec<Vec<u8>> = headers.iter().map(|(code, flag, opaque, fields, fault)| {
                let fixed = Fixed { code: *code, flag: *flag, opaque: *opaque, ..Fixed::default() };
                let mut out = Vec::new();
                encode(&mut out, Serialize::Json, &fixed, None,
                    |w| for (key, value) in fields { w.str(key, value) }, 0);
                let Ok(Split::Frame(frame, _)) = frame::split(&out) else { panic!("no frame") };
                let mut text = frame.header.to_vec();
                if let Some((at, byte)) = fault {
                    let at = at.index(text.len());
                    text[at] = *byte;
                }
                text
            }).collect();
            check(&texts);
        }
    }
}
