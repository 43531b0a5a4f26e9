//! The catalogue of error codes. Numbers are constants of the public interface; the texts are ours.

use std::fmt;

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $status:literal, $title:literal, $cause:literal, $remedy:literal;)+) => {
        /// A catalogued failure. A response with a code is final: clients do not repeat the request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = concat!($code, ": ", $title, ".")] $variant,)+
        }

        impl ErrorCode {
            /// Every code, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The code on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The usual HTTP status; a few operations answer with another.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// What it means, as a message for people when nothing more exact is known.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// Likely causes.
            #[must_use]
            pub const fn cause(self) -> &'static str {
                match self { $(Self::$variant => $cause,)+ }
            }

            /// What to do about it.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

error_codes! {
    NodeUnknown = "ERR-01-001", 400, "The named node does not exist",
        "A wrong number, or a node that was removed", "List the nodes, or leave the node out to have one chosen";
    ComposeMissing = "ERR-01-002", 400, "The compose file is missing",
        "docker_compose_file (or bash_script for the runner bash) is absent or blank", "Send the program that the runner runs";
    ComposeInvalid = "ERR-01-003", 400, "The compose file is invalid",
        "Not YAML, no services, or beyond a limit", "Correct the place that the message names";
    NameTaken = "ERR-01-004", 409, "A CVM with this name already exists in the workspace",
        "Names are unique in a workspace, whatever the case of their letters", "Choose another name, or delete the other CVM";
    HashRegistrationRequired = "ERR-01-005", 465, "The compose hash must be registered first",
        "The application's contract does not know the new hash or device, or too few of its owners have signed it",
        "Have its owner register it on chain, or its owners sign it (cloister approve), then finish with the commit token";
    CommitTokenInvalid = "ERR-01-006", 466, "The hash or commit token is unknown, expired, superseded or used",
        "Another update came in between, or too much time passed", "Prepare the update again";
    TransactionInvalid = "ERR-01-007", 467, "The transaction could not be verified",
        "Its receipt is missing or reverted, or it went to another contract", "Check the transaction and its chain";
    HashDenied = "ERR-01-008", 468, "Those who decide do not allow this hash",
        "The hash or device was not added to the application's contract, or was removed again; or too few of its owners have signed it, or they took it back",
        "Add it to the application's contract, or have its owners sign it, then commit with the same token";
    InstanceTypeUnknown = "ERR-02-001", 400, "The instance type does not exist",
        "A misspelt or withdrawn type", "Choose one from GET /api/v1/instance-types";
    NoNodeMatches = "ERR-02-002", 400, "No node matches the request",
        "No node is online, or none in the region or with the image has room", "Ask for less, or name another region, image or node";
    NodeLacksVcpu = "ERR-02-003", 400, "The node has too few free vCPUs",
        "Other CVMs use them", "Ask for less or let the service choose the node";
    NodeLacksMemory = "ERR-02-004", 400, "The node has too little free memory",
        "Other CVMs use it", "Ask for less or let the service choose the node";
    NodeLacksSlots = "ERR-02-005", 400, "The node has no free CVM slot",
        "It runs as many CVMs as it may", "Delete CVMs that are not needed or choose another node";
    GpuAllocationFailed = "ERR-02-006", 400, "No GPU could be allocated",
        "Another CVM was quicker", "Try again, or ask for fewer GPUs";
    NodeLacksGpus = "ERR-02-007", 400, "The node has too few GPUs",
        "The node has none, or fewer than asked for", "Ask for fewer GPUs or choose another node";
    InvalidParameter = "ERR-02-008", 400, "A parameter is invalid",
        "A value outside of its range or of a wrong form", "Correct the member that the details name";
    IncompatibleParameters = "ERR-02-009", 400, "Parameters do not go together",
        "Two members that exclude each other, or one that needs another", "Correct one of the members that the details name";
    ImageUnknown = "ERR-02-010", 400, "The OS image does not exist",
        "A misspelt name, or an image that no node offers any more", "Choose one from GET /api/v1/os-images";
    NoMatchingKms = "ERR-02-011", 400, "The node offers no matching KMS",
        "The wanted kind of KMS is not set up", "Choose another KMS or node";
    NodeNotAccessible = "ERR-02-012", 400, "The node is not accessible to this workspace",
        "It is reserved, in maintenance or offline", "Choose another node";
    NoCompatibleImage = "ERR-02-013", 400, "No compatible OS image is available",
        "The nodes offer no image of the wanted kind", "Name an image, or have the operator add one";
    NodeCapacityUnknown = "ERR-02-014", 400, "The node's capacity is not known",
        "It has not reported yet", "Wait until the node is online or choose another";
    QuotaExceeded = "ERR-02-015", 400, "The workspace's quota is exceeded",
        "Its CVMs use what the workspace may use", "Delete or shrink CVMs, or have the quota raised";
    GpusOccupied = "ERR-02-016", 400, "All GPUs of the node are in use",
        "Other CVMs hold them", "Wait, or choose another node";
    CvmNotFound = "ERR-03-001", 404, "CVM not found",
        "A wrong identifier, a deleted CVM, or a key of another workspace", "List the CVMs of the workspace that the key belongs to";
    NameAmbiguous = "ERR-03-002", 400, "Several CVMs have this name",
        "The name is used more than once", "Use the CVM's id";
    CvmInOtherWorkspace = "ERR-03-003", 403, "The CVM belongs to another workspace",
        "The key is bound to another workspace; only administrators are told so", "Use a key of that workspace";
    CvmMaskedWorkspace = "ERR-03-004", 403, "CVM not found",
        "A wrong identifier, a deleted CVM, or a key of another workspace", "List the CVMs of the workspace that the key belongs to";
    CvmMaskedPermission = "ERR-03-005", 403, "CVM not found",
        "A wrong identifier, a deleted CVM, or a key of another workspace", "List the CVMs of the workspace that the key belongs to";
    SourceImageMissing = "ERR-03-006", 400, "The target node lacks the source's OS image",
        "Images differ from node to node", "Choose a node that has the image";
    AppIdTaken = "ERR-03-007", 409, "The app id is already used with another configuration",
        "A CVM of this application runs another compose file", "Update that CVM, or provision without an app id";
    ReplicaSourceNotVisible = "ERR-03-008", 404, "The source CVM is not visible",
        "It belongs to another workspace or was deleted", "Check the identifier and the key";
    HashNeeded = "ERR-03-009", 400, "compose_hash is needed",
        "The application has several CVMs with different configurations", "Say which configuration by its compose_hash";
    IdentifierAmbiguous = "ERR-03-010", 400, "The identifier matches several CVMs",
        "Several CVMs belong to this application", "Use the CVM's id or UUID";
    InsufficientBalance = "ERR-04-001", 400, "The balance is insufficient",
        "The workspace pays in advance, and its credit is used up", "Have the operator add credit; see GET /api/v1/workspace/billing, or cloister billing. What runs goes on";
    CvmLimit = "ERR-04-002", 400, "The account's limit of CVMs is reached",
        "The tier allows no more", "Delete CVMs that are not needed or change the tier";
    ResourceLimit = "ERR-04-003", 400, "A resource limit of the account is reached",
        "The tier allows no more, or the application's budget of the month is used up and stops it", "Ask for less, change the tier, or raise or remove the budget";
    TooManyKeys = "ERR-05-001", 400, "The workspace has too many API keys",
        "Keys that are not used any more were not removed", "Delete keys that are not needed";
    KeyCreationRate = "ERR-05-002", 429, "Too many API keys were created",
        "More than a person would make in so short a time", "Wait for the time in Retry-After";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The catalogue as a page of the documentation.
#[must_use]
pub fn catalogue() -> String {
    let mut page = String::from(
        "# Error codes\n\nA response with a code is final: repeating the same request gives the same answer. \
         Failures that pass by themselves (409 while another operation runs, 429, 503) carry no code and \
         `Retry-After` where the time is known.\n\n\
         | Code | Status | Meaning | Likely causes | What to do |\n|---|---|---|---|---|\n",
    );
    page.extend(ErrorCode::ALL.iter().map(|code| {
        format!("| {code} | {} | {} | {} | {} |\n", code.status(), code.title(), code.cause(), code.remedy())
    }));
    page
}
