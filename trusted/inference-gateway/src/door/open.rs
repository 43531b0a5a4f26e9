//! Answers that anybody may ask for: limited all together in memory, as nobody has to take them.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;

use super::budget::{BodyBudget, SMALL};
use super::inbound::no_room;

/// Memory that those of one kind may have together, in bytes. It is none of that of bodies: who has no key takes nothing from
/// those who have one.
pub(crate) const ROOM: usize = 32 << 20;

/// Has an answer counted, unless it is small, until the client has taken it. One that has no room is refused.
pub(super) async fn counted(State(room): State<BodyBudget>, request: Request, next: Next) -> Response {
    within(&room, next.run(request).await).await
}

async fn within(room: &BodyBudget, response: Response) -> Response {
    let (head, body) = response.into_parts();
    // They are there as a whole, in one piece.
    let Ok(body) = body.collect().await else { return no_room().into_response() };
    let (bytes, mut share) = (body.to_bytes(), room.share(1));
    if bytes.len() > SMALL && share.try_cover(bytes.len()).is_err() {
        return no_room().into_response();
    }
    Response::from_parts(head, Body::from(share.hold(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_taken_leaves_no_room_for_more_but_for_little() {
        let room = BodyBudget::new(100 << 10);
        let ask = async |length| within(&room, Response::new(Body::from(vec![b'x'; length]))).await;
        let first = ask(90 << 10).await;
        assert_eq!((first.status().as_u16(), room.left() >> 10), (200, 8));
        let refused = ask(9 << 10).await;
        assert_eq!(
            (refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()),
            (503, &b"1"[..])
        );
        let small = ask(SMALL).await;
        assert_eq!((small.status().as_u16(), room.left() >> 10), (200, 8));
        assert_eq!(first.into_body().collect().await.unwrap().to_bytes().len(), 90 << 10);
        assert_eq!((room.left() >> 10, ask(9 << 10).await.status().as_u16()), (100, 200));
    }
}
