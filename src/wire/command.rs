//! Requests and responses that own their parts: what the control plane works with.
//!
//! Sends and pulls never become one of these; see [`super::send_header`] and
//! [`super::pull_header`].

use std::borrow::Cow;
use std::str::FromStr;

use bytes::Bytes;

use super::codes::response;
use super::frame::{Frame, Serialize};
use super::header::{
    self, FLAG_RESPONSE, FieldError, FieldFault, Fixed, Header, VERSION, parse_bool, parse_int,
};

/// An owned request.
#[derive(Clone, Debug)]
pub struct Request {
    /// How the header was written; the answer is written the same way.
    pub serialize: Serialize,
    /// The fixed members of the header.
    pub fixed: Fixed,
    ext: Vec<(String, String)>,
    /// The body; empty where there is none.
    pub body: Bytes,
}

impl Request {
    /// Copies a decoded request out of its buffers. Text that is not UTF-8 is
    /// replaced as Java replaces it.
    pub fn from_header(frame: &Frame<'_>, header: &Header<'_>) -> Request {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Request {
            serialize: frame.serialize,
            fixed: header.fixed,
            ext: header.fields().map(|(k, v)| (text(k), text(v))).collect(),
            body: Bytes::copy_from_slice(frame.body),
        }
    }

    /// A request to send: JSON, our version, `opaque` to be set by the transport.
    pub fn new(code: i32) -> Request {
        Request {
            serialize: Serialize::Json,
            fixed: Fixed {
                code,
                version: VERSION,
                ..Fixed::default()
            },
            ext: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// Adds an ext field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Request {
        self.ext.push((key.to_owned(), value.to_string()));
        self
    }

    /// Sets an ext field, in place of the one of that name if there is one.
    pub fn set(&mut self, key: &str, value: impl ToString) {
        self.ext.retain(|(name, _)| name != key);
        self.ext.push((key.to_owned(), value.to_string()));
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Request {
        self.body = body.into();
        self
    }

    /// The value of an ext field, if it is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        let field = self.ext.iter().rev().find(|(name, _)| name == key);
        field.map(|(_, value)| value.as_str())
    }

    /// The value of a mandatory ext field.
    ///
    /// # Errors
    /// [`FieldFault::Missing`].
    pub fn str(&self, key: &'static str) -> Result<&str, FieldError> {
        header::required(key, self.get(key))
    }

    /// The number in a mandatory ext field.
    ///
    /// # Errors
    /// [`FieldFault::Missing`], [`FieldFault::NotANumber`].
    pub fn int<T: TryFrom<i64>>(&self, key: &'static str) -> Result<T, FieldError> {
        parse_int(key, self.str(key)?.as_bytes())
    }

    /// The number in an ext field, or `default` where it is missing or empty.
    ///
    /// # Errors
    /// [`FieldFault::NotANumber`].
    pub fn int_or<T: TryFrom<i64>>(&self, key: &'static str, default: T) -> Result<T, FieldError> {
        match self.get(key) {
            None | Some("") => Ok(default),
            Some(text) => parse_int(key, text.as_bytes()),
        }
    }

    /// The boolean in an ext field, or `default` where it is missing.
    ///
    /// # Errors
    /// [`FieldFault::NotABool`].
    pub fn bool_or(&self, key: &'static str, default: bool) -> Result<bool, FieldError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => parse_bool(key, text.as_bytes()),
        }
    }

    /// The floating-point or other value in an ext field that parses by `FromStr`.
    ///
    /// # Errors
    /// [`FieldFault::Missing`], [`FieldFault::NotANumber`].
    pub fn parse<T: FromStr>(&self, key: &'static str) -> Result<T, FieldError> {
        self.str(key)?.parse().map_err(|_| FieldError {
            field: key,
            what: FieldFault::NotANumber,
        })
    }

    /// The ext fields in order.
    pub fn ext(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ext.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Appends the request as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fields = |w: &mut header::ExtWriter<'_>| {
            for (key, value) in &self.ext {
                w.str(key, value);
            }
        };
        let body = &self.body;
        header::encode(out, self.serialize, &self.fixed, None, fields, body.len());
        out.extend_from_slice(body);
    }
}

/// An owned response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Response code, [`response`].
    pub code: i32,
    /// Text for people; what was wrong, where, and the limit.
    pub remark: Option<String>,
    /// The ext fields in order.
    pub ext: Vec<(Cow<'static, str>, String)>,
    /// The body; empty where there is none.
    pub body: Bytes,
}

impl Response {
    /// A response with code 0.
    pub fn ok() -> Response {
        Response::default()
    }

    /// A response with code 0 and a body.
    pub fn body(body: impl Into<Bytes>) -> Response {
        Response {
            body: body.into(),
            ..Response::default()
        }
    }

    /// A response with an error code and its remark.
    pub fn error(code: i32, remark: impl Into<String>) -> Response {
        Response {
            code,
            remark: Some(remark.into()),
            ..Response::default()
        }
    }

    /// The answer to a request whose code is not served.
    pub fn not_supported(code: i32) -> Response {
        Response::error(
            response::REQUEST_CODE_NOT_SUPPORTED,
            format!("request code {code} is not supported"),
        )
    }

    /// Adds an ext field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Response {
        self.ext.push((Cow::Borrowed(key), value.to_string()));
        self
    }

    /// The value of an ext field, if it is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        let field = self.ext.iter().find(|(name, _)| name == key);
        field.map(|(_, value)| value.as_str())
    }

    /// Copies a decoded response out of its buffers.
    pub fn from_header(frame: &Frame<'_>, header: &Header<'_>) -> Response {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Response {
            code: header.fixed.code,
            remark: header.remark().map(text),
            ext: header
                .fields()
                .map(|(k, v)| (Cow::Owned(text(k)), text(v)))
                .collect(),
            body: Bytes::copy_from_slice(frame.body),
        }
    }

    /// Appends the response to the request that had `opaque`, as a frame.
    pub fn encode(&self, out: &mut Vec<u8>, serialize: Serialize, opaque: i32) {
        header::encode(
            out,
            serialize,
            &response_fixed(self.code, opaque),
            self.remark.as_deref(),
            |w| {
                for (key, value) in &self.ext {
                    w.str(key, value);
                }
            },
            self.body.len(),
        );
        out.extend_from_slice(&self.body);
    }
}

/// The fixed members of a response.
pub const fn response_fixed(code: i32, opaque: i32) -> Fixed {
    Fixed {
        code,
        language: 0,
        version: VERSION,
        opaque,
        flag: FLAG_RESPONSE,
    }
}

impl From<FieldError> for Response {
    fn from(error: FieldError) -> Response {
        Response::error(response::SYSTEM_ERROR, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_set_is_there_once() {
        let mut request = Request::new(34).with("a", 1).with("b", 2).with("a", 3);
        request.set("a", 4);
        request.set("c", 5);
        let fields = [("a", "4"), ("b", "2"), ("c", "5")];
        assert!(
            fields
                .iter()
                .all(|(name, value)| request.get(name) == Some(value))
        );
        assert_eq!(request.ext.len(), fields.len());
    }
}
