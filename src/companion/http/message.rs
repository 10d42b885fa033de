//! Requests, answers, and who makes an answer of a request.

/// What is served.
pub trait Site: Sync {
    /// How long a body this request may have, in bytes. It is asked when only
    /// the head is there: the error answers the request without its body.
    /// Usually there is no room.
    fn room_for_body(&self, _head: &Request) -> Result<usize, Answer> {
        Ok(0)
    }

    /// The answer to a complete request.
    fn answer(&self, request: &Request) -> Answer;
}

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path, as it was sent, without the query.
    pub path: String,
    /// What follows the `?` of the target, as it was sent.
    pub query: String,
    /// The headers, with their names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An answer.
pub struct Answer {
    pub status: Status,
    /// The content type.
    pub kind: &'static str,
    /// More headers.
    pub headers: &'static [(&'static str, &'static str)],
    pub body: Vec<u8>,
}

/// A status and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok = 200,
    BadRequest = 400,
    Unauthorized = 401,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    LengthRequired = 411,
    ContentTooLarge = 413,
    HeadTooLarge = 431,
    BadGateway = 502,
    Unavailable = 503,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::BadRequest => "Bad Request",
            Status::Unauthorized => "Unauthorized",
            Status::Forbidden => "Forbidden",
            Status::NotFound => "Not Found",
            Status::MethodNotAllowed => "Method Not Allowed",
            Status::LengthRequired => "Length Required",
            Status::ContentTooLarge => "Content Too Large",
            Status::HeadTooLarge => "Request Header Fields Too Large",
            Status::BadGateway => "Bad Gateway",
            Status::Unavailable => "Service Unavailable",
        }
    }
}

impl Request {
    /// The value of a header, whose name is given in small letters; `None` if
    /// it is missing or there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// Whether there is such a header.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }
}

impl Answer {
    /// A text that is no page, as errors are.
    pub fn text(status: Status, text: impl Into<String>) -> Answer {
        Answer {
            status,
            kind: "text/plain; charset=utf-8",
            headers: &[],
            body: text.into().into_bytes(),
        }
    }
}
