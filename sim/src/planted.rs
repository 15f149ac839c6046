//! Bugs planted on purpose, all of them in the driver: the product has no switch for them.
//! Each one is what a plausible mistake would look like from outside; each has the checks that
//! may find it. A simulator that misses one of them is not believed.

use crate::sights::Sight;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    SavedBeforeSync,
    FlushLies,
    DirFlushLies,
    VoteForgotten,
    TailForgotten,
    ForwardTwice,
    ReadWithoutRound,
    ReadIndexByAnyone,
    WatchDrops,
    WatchDoubles,
    WatchSwaps,
    WatchSplits,
    WatchStartsLate,
    ProgressEarly,
    ClockTooFast,
    RenewalWithoutLeader,
    DiskRolledBack,
    ApplySkew,
    LogCutEarly,
    PrevForgotten,
    TimeoutIsRefusal,
    UrgentLaneDies,
    RevisionOffByOne,
    StaleSerial,
    NoteForEver,
    JobForEver,
    ForwardsAgain,
    RecordSwapped,
    BatchSwapped,
    EmptiedFounds,
    NewestLogGone,
    TailSpoilt,
    LostWrites,
    Misdirected,
    ChunksLost,
    RenewalsRefused,
    ClockTooSlow,
    FramesCapped,
    RecordsSpoilt,
    TermForgotten,
    FailedSaveIsSaved,
    RewriteSwaps,
    RewriteLoses,
    OldFilesGone,
    LossForgotten,
    /// What is no batch is the end of the log, whatever stood there.
    EndBelieved,
    /// `log/founding` is not there at a start.
    FoundingForgotten,
    ProvenTooFar,
    MendedByAnother,
    DigestsUnheard,
    RebuildForgotten,
    LogGivenUp,
    RootUnflushed,
    RecordsLeftOut,
    VoteBeforeSync,
    /// A checkpoint names records that were not verified while they were measured.
    DamageBlessed,
    /// An install that replaced the state says that the old one stands.
    InstallDenied,
    /// A leader whose disk or apply hangs believes that nobody else is able, and keeps what others
    /// ask it.
    LeaderStays,
    /// A piece of a snapshot counts only within 50 ms.
    PiecesHurried,
    /// An install begins again from its first byte after each broken connection.
    InstallFromStart,
    /// The snapshot of a dead sender keeps the offers of others out for a minute.
    OfferShutOut,
    /// A spare file of the log keeps its name when it is used, and is used again.
    SpareTwice,
    /// A member with an older copy of its disk is not told of it by the others.
    PeersForget,
    /// The newest log file is an older copy of itself.
    OlderLogFile,
    /// An open file is kept by its name when another file takes that name.
    HandleKept,
    /// The mark of a wrong state stays when the state was replaced.
    CorruptKept,
    /// A page inside the newest log file has what another page of it has.
    PageMisplaced,
    /// The state that a member is given ends below the beginning of its log.
    StateBelowLog,
    /// A member that was removed does not hear of it.
    RemovedUntold,
    /// A joiner begins as a founder.
    JoinerFounds,
    /// Names of checkpoints are not flushed at a start.
    ManifestUnflushed,
    /// A member without a state that stops cleanly writes its empty state down.
    EmptyStateWritten,
    /// A mend writes over the record behind the damaged ones.
    MendedTooFar,
    /// Members in doubt do not hear how the others stand.
    StandingsUnheard,
    /// A start changes a bit of a record that a checkpoint names.
    StartSpoils,
    /// A member whose doubt is over goes on saying that it is in doubt.
    DoubtForEver,
    /// What a peer says of its founding is not heard.
    FoundingUnheard,
    /// A member that voted in a term votes for the next one who asks, too.
    VotesTwice,
    /// All members but one come back with older copies of their disks.
    MajorityRolledBack,
    /// The cut of a log does not say that its beginning is committed.
    CutUntold,
    /// A start that finds no room forgets what the member had acknowledged.
    DoubtWithoutRoom,
    /// The time left to a lease is answered as the granted one.
    TimeLeftWhole,
    /// Of a lease that lives, no time is left.
    TimeLeftNone,
    /// `log/voters` is not there at a start.
    VotersForgotten,
    /// `log/voters` is not there when the last voter starts.
    LoneForgotten,
    /// A member that goes on alone drops what was not known to be committed.
    AloneDropsTail,
    /// Members have no connection for what is urgent.
    UrgentBehindLog,
    /// W-10.
    ProgressTooSoon,
    /// W-11.
    CompactedTooSoon,
    ///
    AnswerLost,
    /// M-6.
    ListShort,
    /// M-8.
    ChangeUndone,
    /// M-3.
    SentToSelf,
    /// U-1.
    UsersShort,
    /// D-9.
    SaltKnown,
    /// U-2.
    TakenForAnother,
    /// U-2.
    NobodyIsMember,
    /// V-2.
    LongAgain,
    /// V-7.
    FullIsFinal,
    /// KV-1.
    LongAnswerShort,
}

#[derive(Debug)]
pub struct Entry {
    pub bug: Planted,
    pub name: &'static str,
    pub breaks: &'static str,
    /// Checks of which the first finding must be one.
    pub found_by: &'static [&'static str],
}

pub const BANK: &[Entry] = &[
    Entry {
        bug: Planted::SavedBeforeSync,
        name: "saved-before-sync",
        breaks: "a save is reported done when its write starts",
        found_by: &["D-2", "D-1"],
    },
    Entry {
        bug: Planted::FlushLies,
        name: "flush-lies",
        breaks: "fdatasync returns without flushing",
        found_by: &["D-1", "D-2", "recover"],
    },
    Entry {
        bug: Planted::DirFlushLies,
        name: "dir-flush-lies",
        breaks: "names are never flushed: new log files vanish at power loss",
        found_by: &["D-1", "D-2", "recover", "V-4"],
    },
    Entry {
        bug: Planted::VoteForgotten,
        name: "vote-forgotten",
        breaks: "the vote is not written to the log",
        found_by: &["D-2", "R-1", "R-6"],
    },
    Entry {
        bug: Planted::TailForgotten,
        name: "tail-forgotten",
        breaks: "the last entry of a batch of two or more is not written",
        found_by: &["D-1", "D-2", "D-3", "recover", "panic", "fatal"],
    },
    Entry {
        bug: Planted::ForwardTwice,
        name: "forward-twice",
        breaks: "a forwarded command is sent again after a broken connection, as a new one",
        found_by: &["KV-8"],
    },
    Entry {
        bug: Planted::ReadWithoutRound,
        name: "read-without-round",
        breaks: "a linearisable read is answered from local state",
        found_by: &["KV-3", "KV-1"],
    },
    Entry {
        bug: Planted::ReadIndexByAnyone,
        name: "read-index-by-anyone",
        breaks: "a member that believes to lead confirms an index without asking a quorum",
        found_by: &["KV-3", "KV-1"],
    },
    Entry {
        bug: Planted::WatchDrops,
        name: "watch-drops",
        breaks: "one event message in 40 is lost between core and stream",
        found_by: &["W-5", "W-7"],
    },
    Entry {
        bug: Planted::WatchDoubles,
        name: "watch-doubles",
        breaks: "one event message in 40 reaches the stream twice",
        found_by: &["W-3", "panic"],
    },
    Entry {
        bug: Planted::WatchSwaps,
        name: "watch-swaps",
        breaks: "two event messages change places",
        found_by: &["W-2", "W-3", "W-5", "panic"],
    },
    Entry {
        bug: Planted::WatchSplits,
        name: "watch-splits",
        breaks: "the events of one transaction reach a watch in two messages",
        found_by: &["W-4", "W-3", "panic"],
    },
    Entry {
        bug: Planted::WatchStartsLate,
        name: "watch-starts-late",
        breaks: "a watch joins one revision too late",
        found_by: &["W-5", "W-7"],
    },
    Entry {
        bug: Planted::ProgressEarly,
        name: "progress-early",
        breaks: "progress names one revision more than was delivered",
        found_by: &["W-7", "W-12"],
    },
    Entry {
        bug: Planted::ClockTooFast,
        name: "clock-too-fast",
        breaks: "ticks come twice as fast as time passes: leases end early",
        found_by: &["L-1"],
    },
    Entry {
        bug: Planted::RenewalWithoutLeader,
        name: "renewal-without-leader",
        breaks: "a member answers keep-alives without the leader",
        found_by: &["L-1", "L-7", "U-2"],
    },
    Entry {
        bug: Planted::DiskRolledBack,
        name: "disk-rolled-back",
        breaks: "a member restarts on a disk image of some seconds ago",
        found_by: &["D-1", "D-2"],
    },
    Entry {
        bug: Planted::ApplySkew,
        name: "apply-skew",
        breaks: "one member applies another value than the others",
        found_by: &["R-5", "R-7", "D-3", "H-1"],
    },
    Entry {
        bug: Planted::LogCutEarly,
        name: "log-cut-early",
        breaks: "the log is cut before the checkpoint that covers it is durable",
        found_by: &["KV-2", "recover", "D-1", "panic", "fatal", "V-4"],
    },
    Entry {
        bug: Planted::PrevForgotten,
        name: "prev-forgotten",
        breaks: "the answer of a put lacks the previous value",
        found_by: &["KV-1"],
    },
    Entry {
        bug: Planted::TimeoutIsRefusal,
        name: "timeout-is-refusal",
        breaks: "an unknown outcome is answered as a definite refusal",
        found_by: &["KV-7"],
    },
    Entry {
        bug: Planted::UrgentLaneDies,
        name: "urgent-lane-dies",
        breaks: "after its first break the urgent lane of a connection stays dead",
        found_by: &["V-1", "V-2", "V-4", "V-5", "L-3"],
    },
    Entry {
        bug: Planted::RevisionOffByOne,
        name: "revision-off-by-one",
        breaks: "the header of a refused transaction names the next revision",
        found_by: &["KV-1"],
    },
    Entry {
        bug: Planted::StaleSerial,
        name: "serial-goes-back",
        breaks: "a serialisable read is now and then answered at an older revision",
        found_by: &["KV-5"],
    },
    Entry {
        bug: Planted::NoteForEver,
        name: "note-for-ever",
        breaks: "a member says the same thing in every turn",
        found_by: &["N-1"],
    },
    Entry {
        bug: Planted::JobForEver,
        name: "job-for-ever",
        breaks: "a member begins the same install at every tick",
        found_by: &["N-1"],
    },
    Entry {
        bug: Planted::ForwardsAgain,
        name: "forwards-again",
        breaks: "every forward is sent over and over",
        found_by: &["B-1"],
    },
    Entry {
        bug: Planted::RecordSwapped,
        name: "record-swapped",
        breaks: "a record is written with another value and a right checksum",
        found_by: &["S-5", "D-4", "KV-1", "KV-5", "W-1", "W-5", "W-13", "W-8"],
    },
    Entry {
        bug: Planted::BatchSwapped,
        name: "batch-swapped",
        breaks: "two entries of a batch are written with each other's data",
        found_by: &["D-3", "R-5", "R-7", "panic", "recover"],
    },
    Entry {
        bug: Planted::EmptiedFounds,
        name: "emptied-founds",
        breaks: "a member whose disk was emptied founds itself at once",
        found_by: &["D-1", "D-2", "R-1", "R-5", "R-7", "H-1", "recover"],
    },
    Entry {
        bug: Planted::NewestLogGone,
        name: "newest-log-gone",
        breaks: "the newest log file vanishes while a member is down",
        found_by: &["D-1", "D-2", "recover"],
    },
    Entry {
        bug: Planted::TailSpoilt,
        name: "tail-spoilt",
        breaks: "the last batch is damaged while a member is down, and is cut",
        found_by: &["D-1", "D-2", "recover", "V-2", "V-1"],
    },
    Entry {
        bug: Planted::LostWrites,
        name: "lost-writes",
        breaks: "one disk forgets flushed writes of the log at a power loss",
        found_by: &["D-1", "D-2", "recover"],
    },
    Entry {
        bug: Planted::Misdirected,
        name: "misdirected",
        breaks: "the last write of the log lies a page away after a crash",
        found_by: &["D-1", "D-2", "recover", "V-2", "V-1"],
    },
    Entry {
        bug: Planted::ChunksLost,
        name: "chunks-lost",
        breaks: "pieces of checkpoints never arrive",
        found_by: &["V-5", "V-2", "V-4", "V-1"],
    },
    Entry {
        bug: Planted::RenewalsRefused,
        name: "renewals-refused",
        breaks: "keep-alives at healthy members are lost during faults",
        found_by: &["L-3"],
    },
    Entry {
        bug: Planted::ClockTooSlow,
        name: "clock-too-slow",
        breaks: "two of three ticks are lost: leases live too long",
        found_by: &["L-4", "L-2", "V-2", "V-1", "L-8"],
    },
    Entry {
        bug: Planted::FramesCapped,
        name: "frames-capped",
        breaks: "no frame of more than 1 kB reaches a peer",
        found_by: &["V-2", "V-5", "V-1", "V-4"],
    },
    Entry {
        bug: Planted::RecordsSpoilt,
        name: "records-spoilt",
        breaks: "a bit of a record changes behind its write",
        found_by: &["D-5", "D-4", "recover", "fatal", "V-1"],
    },
    Entry {
        bug: Planted::TermForgotten,
        name: "term-forgotten",
        breaks: "a new term is written as the one before",
        found_by: &["D-2", "R-1", "R-6", "panic"],
    },
    Entry {
        bug: Planted::FailedSaveIsSaved,
        name: "failed-save-is-saved",
        breaks: "a save that failed is reported done",
        found_by: &["D-1", "D-2", "recover", "panic", "R-4", "fatal"],
    },
    Entry {
        bug: Planted::RewriteSwaps,
        name: "rewrite-swaps",
        breaks: "a rewritten segment holds a record with another value and a right checksum",
        found_by: &["S-5", "D-4", "KV-1", "KV-5", "W-1", "W-5", "W-13", "H-2"],
    },
    Entry {
        bug: Planted::RewriteLoses,
        name: "rewrite-loses",
        breaks: "a step of a rewrite leaves out its last record",
        found_by: &["D-4", "D-5", "panic", "recover"],
    },
    Entry {
        bug: Planted::OldFilesGone,
        name: "old-files-gone",
        breaks: "segments that were rewritten vanish before a checkpoint names the new one",
        found_by: &["D-5", "D-4", "D-1", "D-2", "recover", "fatal", "panic", "KV-1", "KV-2", "W-5"],
    },
    Entry {
        bug: Planted::LossForgotten,
        name: "loss-forgotten",
        breaks: "a member that cut its damaged log, or started over, forgets what it had acknowledged",
        found_by: &["D-5", "D-1", "R-2", "R-5", "R-7", "H-1", "KV-1", "KV-3", "KV-8", "V-4", "V-1", "V-6"],
    },
    Entry {
        bug: Planted::EndBelieved,
        name: "end-believed",
        breaks: "other bytes over the last batch and behind it are taken for the end of the log",
        found_by: &["D-5", "D-1", "R-2", "R-5", "R-7", "H-1", "KV-1", "KV-3", "KV-8", "V-4", "V-1", "V-6"],
    },
    Entry {
        bug: Planted::FoundingForgotten,
        name: "founding-forgotten",
        breaks: "a log without its state does not say which founding it is of",
        found_by: &[
            "D-5", "D-1", "D-2", "R-2", "R-3", "R-4", "R-5", "R-7", "M-7", "KV-1", "V-4", "V-1", "V-2", "H-1", "H-3",
            "recover",
        ],
    },
    Entry {
        bug: Planted::ProvenTooFar,
        name: "proven-too-far",
        breaks: "the proof of the log's end calls all of it committed",
        found_by: &["D-2", "R-2", "R-4", "R-5", "R-7", "H-1", "panic"],
    },
    Entry {
        bug: Planted::MendedByAnother,
        name: "mended-by-another",
        breaks: "a damaged record is mended with one of another revision",
        found_by: &["S-5", "D-4", "D-5", "D-7", "H-2", "W-5", "KV-1", "V-1"],
    },
    Entry {
        bug: Planted::DigestsUnheard,
        name: "digests-unheard",
        breaks: "a member does not compare its state with the others', and goes on serving",
        found_by: &["H-3"],
    },
    Entry {
        bug: Planted::RebuildForgotten,
        name: "rebuild-forgotten",
        breaks: "a member whose state is to be replaced is never offered another",
        found_by: &["H-3", "V-4", "V-5"],
    },
    Entry {
        bug: Planted::LogGivenUp,
        name: "log-given-up",
        breaks: "a member whose state is replaced gives up its log with it",
        found_by: &["D-1", "D-2"],
    },
    Entry {
        bug: Planted::FoundingUnheard,
        name: "founding-unheard",
        breaks: "members do not tell each other which founding they are of",
        found_by: &["D-2", "R-4", "R-2", "R-5", "R-7", "D-1", "H-1", "KV-2"],
    },
    Entry {
        bug: Planted::RootUnflushed,
        name: "root-unflushed",
        breaks: "names in the data directory are not flushed at a start",
        found_by: &["D-1", "D-2", "recover", "V-4"],
    },
    Entry {
        bug: Planted::RecordsLeftOut,
        name: "records-left-out",
        breaks: "a member that gives records leaves the last one out and says that it gave all",
        found_by: &["D-4", "D-5", "D-7", "H-2", "W-5", "KV-1", "V-1", "S-5"],
    },
    Entry {
        bug: Planted::VoteBeforeSync,
        name: "vote-before-sync",
        breaks: "a vote is answered when its write starts",
        found_by: &["D-2"],
    },
    Entry {
        bug: Planted::DamageBlessed,
        name: "damage-blessed",
        breaks: "a checkpoint names records that were not verified while they were measured",
        found_by: &["D-6"],
    },
    Entry {
        bug: Planted::InstallDenied,
        name: "install-denied",
        breaks: "an install that replaced the state says that the old one stands",
        found_by: &[
            "D-1", "D-4", "D-5", "D-8", "H-1", "H-2", "N-1", "S-5", "KV-1", "KV-2", "KV-3", "KV-5", "W-1", "W-5",
            "V-1", "V-2", "V-4", "V-5", "V-6", "panic", "recover", "fatal",
        ],
    },
    Entry {
        bug: Planted::LeaderStays,
        name: "leader-stays",
        breaks: "a leader whose disk or apply hangs believes that nobody else is able, and keeps what others ask it",
        found_by: &["V-2", "L-3"],
    },
    Entry {
        bug: Planted::PiecesHurried,
        name: "pieces-hurried",
        breaks: "a piece of a snapshot counts only within 50 ms",
        found_by: &["B-3", "V-5", "V-4", "V-2", "V-1"],
    },
    Entry {
        bug: Planted::InstallFromStart,
        name: "install-from-start",
        breaks: "an install begins again from its first byte after each broken connection",
        found_by: &["B-3", "V-5", "V-4", "V-2"],
    },
    Entry {
        bug: Planted::OfferShutOut,
        name: "offer-shut-out",
        breaks: "the snapshot of a dead sender keeps the offers of others out for a minute",
        found_by: &["V-5", "V-4", "V-2"],
    },
    Entry {
        bug: Planted::SpareTwice,
        name: "spare-twice",
        breaks: "a spare file of the log keeps its name when it is used, and is used again",
        found_by: &["D-1", "D-2", "D-3", "D-5", "R-5", "R-7", "recover", "fatal", "panic"],
    },
    Entry {
        bug: Planted::PeersForget,
        name: "peers-forget",
        breaks: "a member with an older copy of its disk is not told of it by the others",
        found_by: &["R-1", "R-2", "R-5", "R-7", "R-6", "D-1", "D-2", "KV-1", "KV-3", "KV-8", "H-1", "V-4", "panic"],
    },
    Entry {
        bug: Planted::OlderLogFile,
        name: "older-log-file",
        breaks: "the newest log file is an older copy of itself",
        found_by: &["D-1", "D-2", "recover"],
    },
    Entry {
        bug: Planted::HandleKept,
        name: "handle-kept",
        breaks: "an open file is kept by its name when another file takes that name",
        found_by: &[
            "D-5", "D-4", "H-2", "S-5", "KV-1", "KV-5", "W-1", "W-5", "V-4", "V-5", "recover", "fatal", "panic",
        ],
    },
    Entry {
        bug: Planted::CorruptKept,
        name: "corrupt-kept",
        breaks: "the mark of a wrong state stays when the state was replaced",
        found_by: &["H-3", "V-6", "V-4", "KV-1", "KV-3"],
    },
    Entry {
        bug: Planted::PageMisplaced,
        name: "page-misplaced",
        breaks: "a page inside the newest log file has what another page of it has",
        found_by: &["D-1", "D-2", "D-3", "recover"],
    },
    Entry {
        bug: Planted::StateBelowLog,
        name: "state-below-log",
        breaks: "the state that a member is given ends below the beginning of its log",
        found_by: &["D-1", "D-2", "KV-2", "V-4", "V-5", "recover", "panic", "B-3", "H-3"],
    },
    Entry {
        bug: Planted::RemovedUntold,
        name: "removed-untold",
        breaks: "nobody tells a removed member that it was removed",
        found_by: &["V-4", "V-5"],
    },
    Entry {
        bug: Planted::JoinerFounds,
        name: "joiner-founds",
        breaks: "a member that joins begins as a founder, with a vote and a state of its own",
        found_by: &["D-1", "D-2", "R-1", "R-5", "KV-2", "H-1", "S-3", "V-1", "V-4", "panic", "recover", "fatal"],
    },
    Entry {
        bug: Planted::ManifestUnflushed,
        name: "manifest-unflushed",
        breaks: "names of checkpoints are not flushed at a start",
        found_by: &["D-1", "D-2", "KV-2", "recover", "V-4"],
    },
    Entry {
        bug: Planted::EmptyStateWritten,
        name: "empty-state-written",
        breaks: "a member without a state that stops cleanly writes its empty state down",
        found_by: &["KV-2", "H-1", "D-1", "D-4", "D-5", "recover", "panic"],
    },
    Entry {
        bug: Planted::MendedTooFar,
        name: "mended-too-far",
        breaks: "a mend writes over the record behind the damaged ones",
        found_by: &["D-8", "D-4", "D-5"],
    },
    Entry {
        bug: Planted::StandingsUnheard,
        name: "standings-unheard",
        breaks: "members in doubt do not hear how the others stand",
        found_by: &["V-1", "V-2", "V-4", "V-6"],
    },
    Entry {
        bug: Planted::StartSpoils,
        name: "start-spoils",
        breaks: "a start changes a bit of a record that a checkpoint names",
        found_by: &["D-8"],
    },
    Entry {
        bug: Planted::DoubtForEver,
        name: "doubt-for-ever",
        breaks: "a member whose doubt is over goes on saying that it is in doubt",
        found_by: &["V-6"],
    },
    Entry {
        bug: Planted::VotesTwice,
        name: "votes-twice",
        breaks: "a member votes twice in a term, and nothing but two leaders shows it",
        found_by: &["R-7"],
    },
    Entry {
        bug: Planted::MajorityRolledBack,
        name: "majority-rolled-back",
        breaks: "all members but one come back with older disks, which end before its log begins",
        found_by: &["R-7"],
    },
    Entry {
        bug: Planted::CutUntold,
        name: "cut-untold",
        breaks: "the cut of a log does not say that its beginning is committed",
        found_by: &["D-1", "D-2"],
    },
    Entry {
        bug: Planted::DoubtWithoutRoom,
        name: "doubt-without-room",
        breaks: "a member that starts with a full disk forgets what it had acknowledged",
        found_by: &["D-5", "D-1", "R-2", "R-5", "R-7", "H-1", "KV-1", "KV-3", "KV-8", "V-4", "V-1"],
    },
    Entry {
        bug: Planted::TimeLeftWhole,
        name: "time-left-whole",
        breaks: "the time left to a lease is answered as the granted one",
        found_by: &["L-8"],
    },
    Entry {
        bug: Planted::TimeLeftNone,
        name: "time-left-none",
        breaks: "of a lease that was just renewed, no second is left",
        found_by: &["L-8"],
    },
    Entry {
        bug: Planted::VotersForgotten,
        name: "voters-forgotten",
        breaks: "a log without its state does not say who votes: its member leads with the founders",
        found_by: &["D-2", "R-1", "R-2", "R-4", "R-5", "KV-1", "KV-3", "H-1", "D-1"],
    },
    Entry {
        bug: Planted::LoneForgotten,
        name: "lone-forgotten",
        breaks: "the last voter that lost its state waits for one from the founders, and does not refuse",
        found_by: &["V-4", "V-1", "V-6"],
    },
    Entry {
        bug: Planted::AloneDropsTail,
        name: "alone-drops-tail",
        breaks: "a member that goes on alone drops the entries that it does not know to be committed",
        found_by: &["D-1", "D-3"],
    },
    Entry {
        bug: Planted::UrgentBehindLog,
        name: "urgent-behind-log",
        breaks: "heartbeats, votes and answers wait behind appends and forwards",
        found_by: &["V-2"],
    },
    Entry {
        bug: Planted::ProgressTooSoon,
        name: "progress-too-soon",
        breaks: "a watch is told of progress before its start",
        found_by: &["W-10"],
    },
    Entry {
        bug: Planted::CompactedTooSoon,
        name: "compacted-too-soon",
        breaks: "a watch that is cancelled for compaction is told a revision that it had passed",
        found_by: &["W-11"],
    },
    Entry {
        bug: Planted::AnswerLost,
        name: "answer-lost",
        breaks: "one request in 200 is never answered, not even when it was cancelled",
        found_by: &["R-11"],
    },
    Entry {
        bug: Planted::ListShort,
        name: "list-short",
        breaks: "a list of members lacks the last one",
        found_by: &["M-6"],
    },
    Entry {
        bug: Planted::ChangeUndone,
        name: "change-undone",
        breaks: "a change of the members is answered and was not made",
        found_by: &["M-8"],
    },
    Entry {
        bug: Planted::SentToSelf,
        name: "sent-to-self",
        breaks: "a frame for a peer goes to the member that sends it",
        found_by: &["M-3"],
    },
    Entry {
        bug: Planted::UsersShort,
        name: "users-short",
        breaks: "a list of users lacks the last one",
        found_by: &["U-1"],
    },
    Entry {
        bug: Planted::SaltKnown,
        name: "salt-known",
        breaks: "clients know the salt of the log",
        found_by: &["D-9", "D-1", "D-3", "recover", "fatal", "V-1", "V-2", "V-4", "D-5"],
    },
    Entry {
        bug: Planted::TakenForAnother,
        name: "taken-for-another",
        breaks: "a user is taken for the one who may do everything",
        found_by: &["U-2"],
    },
    Entry {
        bug: Planted::NobodyIsMember,
        name: "nobody-is-member",
        breaks: "who does not say who it is is taken for the program itself",
        found_by: &["U-2"],
    },
    Entry {
        bug: Planted::LongAgain,
        name: "long-again",
        breaks: "long appends are sent five times each",
        found_by: &["V-2", "V-5"],
    },
    Entry {
        bug: Planted::FullIsFinal,
        name: "full-is-final",
        breaks: "a save that finds no room ends the member",
        found_by: &["V-7"],
    },
    Entry {
        bug: Planted::LongAnswerShort,
        name: "long-answer-short",
        breaks: "a long range of a transaction lacks its last key",
        found_by: &["KV-1"],
    },
];

impl Planted {
    pub fn entry(self) -> &'static Entry {
        BANK.iter().find(|e| e.bug == self).expect("every bug is in the bank")
    }

    /// Sights that show themselves in every seed in which it is hunted, and not in their share of
    /// the seeds.
    pub fn sights(self) -> &'static [Sight] {
        match self {
            Planted::DamageBlessed => &[Sight::RecordRot],
            Planted::LeaderStays => &[Sight::LaneHung],
            Planted::PiecesHurried => &[Sight::Bandwidth],
            Planted::InstallFromStart => &[Sight::PullBroken],
            Planted::OfferShutOut => &[Sight::PullBroken],
            Planted::PeersForget => &[Sight::OlderDisk],
            Planted::CorruptKept => &[Sight::Differs],
            Planted::StateBelowLog => &[Sight::StateGone],
            Planted::RemovedUntold | Planted::JoinerFounds | Planted::ChangeUndone => &[Sight::Operator],
            Planted::ManifestUnflushed | Planted::RootUnflushed => &[Sight::KilledThenPower],
            Planted::EmptyStateWritten => &[Sight::StoppedEmpty],
            Planted::EndBelieved => &[Sight::TailGone],
            Planted::MendedTooFar => &[Sight::RecordRot, Sight::RotAwake],
            Planted::DoubtWithoutRoom => &[Sight::FullAtStart, Sight::TailRot],
            Planted::VotersForgotten => &[Sight::HarmAndChanges],
            Planted::LoneForgotten => &[Sight::Alone],
            Planted::UsersShort => &[Sight::Users],
            Planted::SaltKnown => &[Sight::Forged],
            Planted::TakenForAnother | Planted::NobodyIsMember => &[Sight::Asked],
            Planted::LongAnswerShort => &[Sight::LongTxns],
            Planted::FullIsFinal => &[Sight::NoRoomInside],
            Planted::LongAgain => &[Sight::Bandwidth, Sight::BigValues],
            Planted::AloneDropsTail => &[Sight::Alone],
            Planted::UrgentBehindLog => &[Sight::Bandwidth, Sight::BigValues],
            _ => &[],
        }
    }

    pub fn named(name: &str) -> Option<Planted> {
        BANK.iter().find(|e| e.name == name).map(|e| e.bug)
    }
}

/// `docs/planted-bugs.md`.
pub fn table() -> String {
    let mut page = String::from(
        "# Planted bugs\n\nEach is planted in the simulator's driver, never in the product. `sim --planted` runs every one\nuntil a check finds it; a bug that is not found within 300 seeds fails the run. The ids are those of\n[invariants.md](invariants.md).\n\n| bug | what it breaks | found by |\n|---|---|---|\n",
    );
    for e in BANK {
        page.push_str(&format!("| `{}` | {} | {} |\n", e.name, e.breaks, e.found_by.join(", ")));
    }
    page
}
