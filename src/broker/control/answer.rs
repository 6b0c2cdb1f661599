//! What the answers to control requests have in common.

use serde::de::DeserializeOwned;

use crate::wire::body::json;
use crate::wire::body::topic::DataVersion;
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};

/// An answer; `Err` holds one that ends the handling early, so that `?` does.
pub type Answer = Result<Response, Response>;

/// An answer with an error code.
pub fn error<T>(code: i32, remark: impl Into<String>) -> Result<T, Response> {
    Err(Response::error(code, remark))
}

/// The body of a request as a `T`.
///
/// # Errors
/// Code 1 where there is no body, or it is no `T`.
pub fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Response> {
    if request.body.is_empty() {
        let code = request.fixed.code;
        return error(
            response::SYSTEM_ERROR,
            format!("request {code} has no body"),
        );
    }
    json::parse(&request.body).map_err(|error| {
        let code = request.fixed.code;
        Response::error(
            response::SYSTEM_ERROR,
            format!("body of request {code}: {error}"),
        )
    })
}

/// The answer to an administrator about a topic that does not exist.
pub fn no_topic<T>(topic: &str) -> Result<T, Response> {
    error(
        response::TOPIC_NOT_EXIST,
        format!("topic[{}] not exist", shown(topic)),
    )
}

/// The answer about a group that does not exist.
pub fn no_group<T>(group: &str) -> Result<T, Response> {
    let remark = format!("group[{}] not exist", shown(group));
    error(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// A name from outside as it may stand in a remark: not longer than a name may be.
pub fn shown(name: &str) -> &str {
    const BYTES_MAX: usize = crate::wire::names::DERIVED_TOPIC_BYTES_MAX;
    let end = (0..=BYTES_MAX.min(name.len()))
        .rev()
        .find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

/// The part of a table that a request asks for, as (first, count): all of it, or
/// `count` entries from `first` on (`enableSplitMetadata`). A request made for
/// another edition of the table starts again at 0.
///
/// # Errors
/// Code 1 where a field is no number.
pub fn page(
    request: &Request,
    first: &'static str,
    count: &'static str,
    version: DataVersion,
) -> Result<(usize, usize), Response> {
    const COUNT_MAX: usize = 2_000;
    let text = request.get("dataVersion").filter(|text| !text.is_empty());
    if text.is_none() && request.get(first).is_none() && request.get(count).is_none() {
        return Ok((0, usize::MAX));
    }
    let same_edition = text.is_some_and(|text| json::parse(text.as_bytes()) == Ok(version));
    let asked = request.int_or::<u32>(first, 0)?;
    let from = if same_edition { asked } else { 0 };
    let count = request.int_or::<u32>(count, u32::MAX)?;
    Ok((from as usize, (count as usize).min(COUNT_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_remarks_are_short() {
        assert_eq!(shown("abc"), "abc");
        assert_eq!(shown(&"日".repeat(1000)).len(), 255);
        assert_eq!(shown(&"x".repeat(10_000)).len(), 255);
    }

    #[test]
    fn old_clients_get_everything_and_new_ones_pages_of_one_edition() {
        let version = DataVersion {
            counter: 3,
            state_version: 0,
            timestamp: 5,
        };
        let asked = |fields: &[(&str, &str)]| {
            let request = Request::new(21);
            let request = fields.iter().fold(request, |r, (k, v)| r.with(k, v));
            page(&request, "topicSeq", "maxTopicNum", version)
        };
        assert_eq!(asked(&[]).unwrap(), (0, usize::MAX));
        let same = r#"{"counter":3,"stateVersion":0,"timestamp":5}"#;
        let fields = [
            ("dataVersion", same),
            ("topicSeq", "40"),
            ("maxTopicNum", "20"),
        ];
        assert_eq!(asked(&fields).unwrap(), (40, 20));
        let other = same.replace('3', "4");
        let fields = [("dataVersion", other.as_str()), ("topicSeq", "40")];
        assert_eq!(asked(&fields).unwrap(), (0, 2_000));
        assert_eq!(asked(&[("topicSeq", "x")]).unwrap_err().code, 1);
    }

    #[test]
    fn a_body_that_is_missing_or_broken_is_named() {
        let request = Request::new(41);
        assert_eq!(
            body::<u32>(&request).unwrap_err().remark.unwrap(),
            "request 41 has no body"
        );
        let broken = body::<u32>(&request.with_body("{")).unwrap_err();
        assert!(
            broken.code == 1
                && broken
                    .remark
                    .unwrap()
                    .starts_with("body of request 41: JSON")
        );
    }
}
