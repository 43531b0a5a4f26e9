//! Frames: how changes stand in a segment of the journal, one after the other.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | a mark, which no text has in it, and numbers hardly ever; that of the last frame of those that were written together is another one |
//! | 4 | length of what is carried |
//! | 4 | CRC-32 of all that follows; before it, of the mark that is not the last one's |
//! | 8 | number of the segment |
//! | 8 | how many bytes of the segment were durable when it was written |
//! | … | what is carried |
//!
//! Numbers are little-endian. Frames that were written together are there together, or not at all: whoever wrote them
//! was told of a failure else. A crash cuts off the last frame; a loss of power takes or leaves any of those that were
//! not durable. Either is the end of the segment, and so is [room](ROOM). What follows a frame that cannot be read, and
//! was written when that frame was durable, tells that somebody else has changed the file.

use std::iter;

use memchr::memmem;

/// The mark of the last frame of those that were written together.
const LAST: &[u8] = &[0xff, b'C', b'J', 0xfe];
/// That of one that others follow.
const MORE: &[u8] = &[0xff, b'C', b'M', 0xfe];
/// What both begin with.
const MARK: &[u8] = &[0xff, b'C'];
/// What a segment is filled with behind its last frame, to have room for others. Frames end with text or a small number, unless they
/// carry what could not be read: a part of one does not become a whole one by what was there.
pub(super) const ROOM: u8 = 0xff;
/// Bytes of a mark.
pub(super) const MARK_BYTES: usize = 4;
/// Bytes of a frame before what it carries.
pub(super) const HEAD_BYTES: usize = 28;

/// A frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame<'a> {
    segment: u64,
    durable: u64,
    is_last: bool,
    carried: &'a [u8],
}

/// Appends a frame to some bytes; it is the last one of those that are written together, or others follow. What is
/// carried is shorter than 4 GiB.
pub(super) fn write(out: &mut Vec<u8>, segment: u64, durable: u64, carried: &[u8], is_last: bool) {
    let (segment, durable) = (segment.to_le_bytes(), durable.to_le_bytes());
    let mut hash = hasher(is_last);
    for part in [&segment[..], &durable[..], carried] {
        hash.update(part);
    }
    let length = u32::try_from(carried.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mark = if is_last { LAST } else { MORE };
    out.reserve(HEAD_BYTES + carried.len());
    for part in [mark, &length, &hash.finalize().to_le_bytes(), &segment, &durable, carried] {
        out.extend_from_slice(part);
    }
}

/// How many bytes the frame takes that carries something.
pub(super) const fn length(carried: &[u8]) -> u64 {
    (HEAD_BYTES + carried.len()) as u64
}

/// What checks a frame: no mark can become the other one.
fn hasher(is_last: bool) -> crc32fast::Hasher {
    let mut hash = crc32fast::Hasher::new();
    if !is_last {
        hash.update(MORE);
    }
    hash
}

/// The frame that some bytes begin with, and how many of them it takes.
fn first(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let is_last = bytes.starts_with(LAST);
    let rest = bytes.strip_prefix(LAST).or_else(|| bytes.strip_prefix(MORE))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let bytes = HEAD_BYTES.checked_add(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let body = rest.get(..bytes - (HEAD_BYTES - 16))?;
    let mut computed = hasher(is_last);
    computed.update(body);
    if computed.finalize() != u32::from_le_bytes(*hash) {
        return None;
    }
    let (segment, body) = body.split_first_chunk()?;
    let (durable, carried) = body.split_first_chunk()?;
    let (segment, durable) = (u64::from_le_bytes(*segment), u64::from_le_bytes(*durable));
    Some((Frame { segment, durable, is_last, carried }, bytes))
}

/// What the frames carry that some bytes of a segment begin with, up to what is none of its frames.
pub(super) fn carried(mut bytes: &[u8], segment: u64) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let (frame, length) = first(bytes).filter(|(frame, _)| frame.segment == segment)?;
        bytes = bytes.get(length..)?;
        Some(frame.carried)
    })
}

/// A frame, and where it stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) carried: &'a [u8],
}

/// Something was changed that was durable. The number is the offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage(pub(super) u64);

/// Reads what stands in the file of a segment from an offset on, where a frame begins, as a crash may have left it.
pub(super) fn read(bytes: &[u8], segment: u64, offset: u64) -> Result<Vec<Found<'_>>, Damage> {
    // What stands before `end` is whole; of what follows it, up to `at`, the last frame is still to come.
    let (mut found, mut together, mut end, mut at) = (Vec::new(), Vec::new(), 0, 0);
    while let Some((frame, length)) = bytes.get(at..).and_then(first) {
        if frame.segment != segment {
            break;
        }
        let begin = offset + at as u64;
        together.push(Found { begin, end: begin + length as u64, carried: frame.carried });
        at += length;
        if frame.is_last {
            found.append(&mut together);
            end = at;
        }
    }
    let (mut at, end) = (end, offset + end as u64);
    while let Some(rest) = bytes.get(at..) {
        let Some(next) = memmem::find(rest, MARK) else { break };
        at += next;
        match bytes.get(at..).and_then(first) {
            Some((frame, _)) if frame.segment == segment && frame.durable > end => return Err(Damage(end)),
            Some((_, length)) => at += length,
            None => at += 1,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames of a segment, as they stand from an offset on, each written when all before it was durable, or nothing was; and
    /// where they begin.
    fn file(segment: u64, offset: u64, carried: &[Vec<u8>], is_durable: bool) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for carried in carried {
            begins.push(bytes.len());
            let durable = if is_durable { offset + bytes.len() as u64 } else { 0 };
            write(&mut bytes, segment, durable, carried, true);
        }
        (bytes, begins)
    }

    fn carried_by() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in carried_by(), segment: u64, offset in 0..1_u64 << 40, is_durable: bool) {
            let (bytes, begins) = file(segment, offset, &all, is_durable);
            let found = read(&bytes, segment, offset).unwrap();
            prop_assert_eq!(found.iter().map(|frame| frame.carried).collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
            let all_bytes = bytes.len();
            let ends = begins.iter().skip(1).chain([&all_bytes]);
            for ((frame, begin), end) in found.iter().zip(&begins).zip(ends) {
                prop_assert_eq!(length(frame.carried), (end - begin) as u64);
                prop_assert_eq!((frame.begin, frame.end), (offset + *begin as u64, offset + *end as u64));
                prop_assert_eq!(carried(&bytes[*begin..*end], segment).collect::<Vec<_>>(), [frame.carried]);
            }
            prop_assert_eq!(carried(&bytes, segment).count(), all.len());
        }

        /// A crash may cut a file anywhere, or leave room from there on: all frames before are there.
        #[test]
        fn a_cut_frame_is_the_end(all in carried_by(), cut: prop::sample::Index) {
            let (mut bytes, begins) = file(7, 0, &all, true);
            let cut = cut.index(bytes.len());
            let is_like_room = |end: usize| bytes[cut.min(end)..end].iter().all(|byte| *byte == ROOM);
            let count = |is_whole: &dyn Fn(usize) -> bool| {
                begins.iter().skip(1).chain([&bytes.len()]).take_while(|end| is_whole(**end)).count()
            };
            let (whole, with_room) = (count(&|end| end <= cut), count(&is_like_room));
            prop_assert_eq!(read(&bytes[..cut], 7, 0).unwrap().len(), whole);
            prop_assert_eq!(carried(&bytes[..cut], 7).count(), whole);
            bytes[cut..].fill(ROOM);
            prop_assert_eq!(read(&bytes, 7, 0).unwrap().len(), with_room);
            prop_assert_eq!(carried(&bytes, 7).count(), with_room);
        }

        /// Of what was written together nothing is there unless all of it is, wherever it was cut.
        #[test]
        fn what_was_written_together_is_there_together(
            before in carried_by(), together in carried_by(), cut: prop::sample::Index,
        ) {
            let (mut bytes, _) = file(7, 0, &before, true);
            let (durable, begin) = (bytes.len() as u64, bytes.len());
            for (index, carried) in together.iter().enumerate() {
                write(&mut bytes, 7, durable, carried, index + 1 == together.len());
            }
            prop_assert_eq!(read(&bytes, 7, 0).unwrap().len(), before.len() + together.len());
            let cut = begin + cut.index(bytes.len() - begin);
            prop_assert_eq!(read(&bytes[..cut], 7, 0).unwrap().len(), before.len());
            // One that follows, and was written when they were durable, tells that they were there.
            let end = bytes.len() as u64;
            write(&mut bytes, 7, end, b"next", true);
            bytes[begin] = 0;
            prop_assert_eq!(read(&bytes, 7, 0), Err(Damage(durable)));
        }

        /// A byte that changes among what was durable is found; among the rest it is where the file ends.
        #[test]
        fn damage_is_found(
            all in carried_by(), offset in 0..1_u64 << 40, at: prop::sample::Index, flip in 1_u8.., is_durable: bool,
        ) {
            let (mut bytes, begins) = file(7, offset, &all, is_durable);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let hit = begins.iter().rposition(|begin| *begin <= at).unwrap();
            let read = read(&bytes, 7, offset);
            if is_durable && hit + 1 < all.len() {
                prop_assert_eq!(read, Err(Damage(offset + begins[hit] as u64)));
            } else {
                prop_assert_eq!(read.unwrap().len(), hit);
            }
            prop_assert_eq!(carried(&bytes, 7).count(), hit);
        }

        /// A file that has another's name is no file of that segment.
        #[test]
        fn frames_of_another_segment_are_nothing(all in carried_by()) {
            let (bytes, _) = file(5, 0, &all, true);
            prop_assert_eq!(read(&bytes, 7, 0), Ok(Vec::new()));
            prop_assert_eq!(carried(&bytes, 7).count(), 0);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, segment: u64) {
            prop_assert_eq!(read(&bytes, segment, 0), Ok(Vec::new()));
            prop_assert_eq!(carried(&bytes, segment).count(), 0);
        }
    }
}
