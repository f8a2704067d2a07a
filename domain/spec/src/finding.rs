//! What is said about a file: findings, their codes and their severity.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::span::Span;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can be used, and is likely not what was meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// Which field: `compute.pools[0].shape.gpu`; empty for the file as a whole.
    pub path: String,
    /// Where it stands.
    pub span: Span,
    /// What is wrong, and why.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The page that tells more, from the root of the documentation's repository.
    pub page: String,
}

impl Severity {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal $severity:ident),* $(,)?) => {
        /// What kind of thing a finding is about. Numbers are never given to another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[doc = $doc])* $name = $number),* }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// How much it matters.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity),* }
            }

            /// What its page says.
            pub fn page_text(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../../../docs/findings/FP", $number, ".md"))),*
                }
            }
        }
    };
}

codes! {
    /// The bytes are no UTF-8 text.
    NotText = 1001 Error,
    /// The text is no YAML.
    Syntax = 1002 Error,
    /// A field that does not exist.
    UnknownField = 1003 Error,
    /// A required field is not there.
    MissingField = 1004 Error,
    /// Larger, deeper or more than is read.
    Limit = 1005 Error,
    /// A key that stands twice in one mapping.
    DuplicateKey = 1006 Error,
    /// A list where a text belongs, and so on.
    WrongType = 1007 Error,
    /// A bare number where a unit decides the meaning.
    NoUnit = 1008 Error,
    /// A unit that two habits read differently.
    AmbiguousUnit = 1009 Error,
    /// An amount that cannot be read.
    BadQuantity = 1010 Error,
    /// A plain text that other YAML readers take for something else.
    OtherReading = 1011 Warning,
    /// A word that is none of the choices.
    UnknownChoice = 1012 Error,
    /// A name with characters that names cannot have.
    BadName = 1013 Error,
    /// A GPU model that is not known.
    UnknownGpu = 1014 Error,
    /// A GPU name that fits several models.
    AmbiguousGpu = 1015 Error,
    /// A key without a value.
    Empty = 1016 Error,
    /// More than one document in the file.
    SeveralDocuments = 1017 Error,
    /// An alias, tag or merge key that cannot be followed.
    Reference = 1018 Error,
    /// A version of the format that this program does not read.
    Version = 1019 Error,
    /// A number outside its bounds.
    OutOfRange = 1020 Error,
    /// A text that does not have the form it needs.
    BadForm = 1021 Error,
    /// A name that names nothing.
    Dangling = 1101 Error,
    /// A name that is given twice.
    NameTwice = 1102 Error,
    /// Something declared that nothing uses.
    Unused = 1103 Warning,
    /// Teams are promised more than there is.
    QuotaOverCapacity = 1201 Error,
    /// Projects are promised more than their team.
    QuotaOverTeam = 1202 Error,
    /// The GPU cannot be shared like that.
    Sharing = 1203 Error,
    /// The local engine has one machine.
    LocalNodes = 1204 Error,
    /// A checkpoint that cannot be written or read in its time.
    CheckpointRate = 1205 Error,
    /// A workload that no pool's GPUs suit.
    NoSuitableGpu = 1206 Error,
    /// A workload that is larger than any pool.
    TooLargeForPools = 1207 Error,
    /// GPUs reach the network directly, and no network card can.
    DirectWithoutNic = 1208 Error,
    /// Links between GPUs that this model does not have.
    ImpossibleLink = 1209 Error,
    /// Borrowing or lending that can never happen.
    IdleBorrowing = 1210 Warning,
    /// Dates in the wrong order.
    DateOrder = 1211 Error,
    /// Amounts in different currencies that must be compared.
    MixedCurrency = 1212 Error,
    /// Parts that are more than the whole.
    MoreThanWhole = 1213 Error,
    /// Bounds in the wrong order.
    BoundOrder = 1214 Error,
    /// A price for something else than the field is about.
    WrongBasis = 1215 Error,
    /// A retry that happens anyway and is not counted.
    NeverCounted = 1216 Warning,
    /// Mail without a mail server.
    NoRelay = 1217 Error,
    /// Fields that are read, and that nothing acts on yet.
    NotEnforced = 1900 Note,
}

impl Code {
    /// The page that tells more.
    pub fn page(self) -> String {
        format!("docs/findings/{self}.md")
    }

    /// The code that is written `FP1003`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.to_string().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FP{}", *self as u16)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Findings as they come, with a limit, so that a file full of mistakes cannot fill the memory.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    pub(crate) more: usize,
    pub(crate) has_errors: bool,
}

impl Findings {
    /// Findings that are kept.
    const MOST: usize = 500;

    /// Whether no more are kept; then this one is counted, and its message need not be made.
    pub(crate) fn count_only(&mut self, code: Code) -> bool {
        let is_full = self.list.len() >= Self::MOST;
        if is_full {
            self.more += 1;
            self.has_errors |= code.severity() == Severity::Error;
        }
        is_full
    }

    pub(crate) fn add(
        &mut self,
        code: Code,
        span: Span,
        path: String,
        message: String,
        hint: Option<String>,
    ) {
        if self.count_only(code) {
            return;
        }
        let (severity, page) = (code.severity(), code.page());
        self.has_errors |= severity == Severity::Error;
        self.list.push(Finding { code, severity, path, span, message, hint, page });
    }

    /// Whether an error was found within `span`.
    pub(crate) fn error_within(&self, span: Span) -> bool {
        let mut errors = self.list.iter().filter(|finding| finding.severity == Severity::Error);
        errors.any(|finding| span.contains(finding.span))
    }

    /// In the order of the file.
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| (finding.span, finding.code));
        self.list
    }
}
