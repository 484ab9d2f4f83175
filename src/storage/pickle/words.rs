//! The keys and values of snapshots as numbers: a reading interns them before any other text.

use crate::model::trace::{Action, TextId, Texts};

macro_rules! words {
    ($($name:ident = $text:literal,)+) => {
        /// A key, or a value with a meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Word {
            $($name,)+
        }

        /// Every word with its text, by number.
        const WORDS: &[(Word, &str)] = &[$((Word::$name, $text),)+];
    };
}

words! {
    Nothing = "",
    // The whole.
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    // An event.
    Action = "action",
    Addr = "addr",
    DeviceFree = "device_free",
    Size = "size",
    Stream = "stream",
    TimeUs = "time_us",
    Frames = "frames",
    PoolId = "pool_id",
    // A frame.
    Name = "name",
    Filename = "filename",
    Line = "line",
    // A segment.
    Blocks = "blocks",
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Small = "small",
    // A block.
    State = "state",
    Live = "active_allocated",
    Pending = "active_pending_free",
    // PyTorch's documentation has this name.
    Awaiting = "active_awaiting_free",
    Inactive = "inactive",
    // An annotation.
    Stage = "stage",
    Start = "START",
    End = "END",
    // Settings.
    Conf = "PYTORCH_CUDA_ALLOC_CONF",
    NewConf = "PYTORCH_ALLOC_CONF",
    MaxSplitSize = "max_split_size",
}

/// Interns every word before any other text.
pub(super) fn begin(texts: &mut Texts) {
    for text in WORDS.iter().map(|it| it.1).chain(Action::WORDS.iter().map(|it| it.0)) {
        texts.id(text.as_bytes());
    }
}

/// Returns the word with this text.
pub(super) fn word(text: TextId) -> Option<Word> {
    WORDS.get(text.0 as usize).map(|it| it.0)
}

/// Returns the action with this name.
pub(super) fn action(text: TextId) -> Action {
    let place = (text.0 as usize).checked_sub(WORDS.len());
    place.and_then(|it| Action::WORDS.get(it)).map_or(Action::Other, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_numbers() {
        let mut texts = Texts::default();
        begin(&mut texts);
        for (it, text) in WORDS {
            assert_eq!(word(texts.id(text.as_bytes())), Some(*it));
        }
        for (text, it) in Action::WORDS {
            assert_eq!(action(texts.id(text.as_bytes())), it);
        }
        let other = texts.id(b"seldom");
        assert_eq!((word(other), action(other), action(TextId(1))), (None, Action::Other, Action::Other));
    }
}
