//! Wire types of the management API: dated versions, identifiers, error bodies.
//!
//! No I/O and no clock. Requests are read leniently and completely (see
//! [`cloister_app_compose::decode`]); answers are written so that every published client, however strict,
//! reads them: the members that a client needs are not optional here.

mod allowances;
mod amounts;
mod approvals;
mod apps;
mod attestations;
mod audit;
mod billing;
mod catalogue;
mod changes;
mod compose_schema;
mod cvms;
mod device_logins;
mod domains;
mod errors;
mod ids;
mod instance_ids;
mod kms;
mod legacy;
mod live;
mod names;
mod oauth;
mod operations;
mod os_images;
mod owners;
mod pages;
mod people;
mod refs;
mod replicas;
mod requests;
mod revisions;
mod rollouts;
mod scopes;
mod ssh_keys;
mod updates;
pub mod v20251028;
pub mod v20260121;
mod version;
mod webhooks;

pub use allowances::{
    AllowlistedDevice, AppCvmsIsAllowed, AppGovernance, AppIsAllowedRequest, CvmIsAllowed,
    CvmIsAllowedRequest, DeployerType, DeviceAllowlist, IsAllowed,
};
pub use amounts::{Amount, Money, NotAnAmount, amount_text};
pub use approvals::{
    CommitRequest, CommittedUpdate, ContractCall, OnChainStatus, PendingUpdate, PendingUpdatePreview,
    PendingUpdates, PreparedChange,
};
pub use apps::{
    App, AppFilterOptions, AppMinimal, AppPage, AppProfile, AppRecord, CvmBasicInfo, Quota, Quotas,
    ReservedGpus, WorkspaceQuotas,
};
pub use attestations::{
    AppAttestations, AppCertificate, AppKmsInfo, AppTcbEvaluation, AttestedEvent, CertificateIssuer,
    CertificateSubject, CvmAttestation, EvidenceVerdict, GuestAgentInfo, InstanceAttestation,
    InstanceTcbEvaluation, NodeProvider, ParsedQuote, PlatformListState, QuoteBody, QuoteCollateral,
    QuoteHeader, QuoteVerification, RecentQuote, StoredQuote, TcbInfo, TcbUpdate, VerifyQuoteForm,
    VerifyQuoteRequest,
};
pub use audit::{
    AUDIT_VERSION, AuditActor, AuditChain, AuditFault, AuditHead, AuditPage, AuditPlace, AuditRecord,
    AuditTarget, NO_RECORD, canonical_json, configuration_hash, head_message, record_hash,
};
pub use billing::{
    AppBudget, AppBudgetRequest, AppUsage, Billing, BillingModeRequest, BillingMonth, BudgetState, Credit,
    CreditKind, CreditRequest, Estimate, EstimatePart, EstimateRequest, InferenceUsage, InferenceUsageRecord,
    NotACreditKind, UsageRecord,
};
pub use catalogue::{
    AdminNode, AvailableNodes, CvmCreateResources, GatewayResource, GpuAvailability, InstanceType,
    InstanceTypeFamily, InstanceTypeGroup, InstanceTypeResource, InstanceTypes, KmsResource, NodeImage,
    NodeInvitation, NodeKmsRelation, NodeOffer, OsImage, PushedImage, PushedToNode, TierCapacity, Token,
    Workspace,
};
pub use changes::{BeforeAfter, Compared, ConfigurationChange, ConfigurationDiff};
pub use compose_schema::AppComposeV2;
pub use cvms::{Composition, Container, CvmState, CvmStatus, GuestEvent, ProvisionResponse, Vm};
pub use device_logins::{
    DEVICE_CODE_GRANT, DeviceCode, DeviceCodeRequest, DeviceDecision, DeviceDecisionRequest, DeviceRefusal,
    DeviceRefusalDetail, DeviceToken, DeviceTokenRequest, WaitingDevice,
};
pub use domains::{
    AcmeFetchResult, CaaCheckResult, DiagnoseDomainsRequest, DnsRecordResult, DomainCheckRequest,
    DomainDiagnosis, DomainDiagnosisResult,
};
pub use errors::{
    ErrorBody, ErrorCode, ErrorDetail, ErrorLink, PlainError, ValidationError, ValidationFault, catalogue,
};
pub use ids::{
    CreditId, CvmId, InvalidId, KmsContractId, KmsId, PortMappingId, ProjectId, RevisionId, RolloutId,
    SshKeyId, TokenId, UserId, VersionedId, VmId, WebhookCursor, WebhookId, WorkspaceId,
};
pub use instance_ids::{
    CvmNumber, InstanceIdRefresh, InstanceIdRefreshes, InstanceIdSource, InstanceIdStatus,
    RefreshInstanceIdRequest, RefreshInstanceIdsRequest,
};
pub use kms::{
    KmsBootstrapInfo, KmsContract, KmsInspection, KmsMachine, KmsNode, KmsNodes, KmsOnChain, KmsOnChainKeys,
    KmsOnChainVerification, KmsPubkey, KmsRecord, KmsRoot, KmsRpcInfo, KmsTeepod, KmsTeepodImage, NextAppId,
    NextAppIds, OnChainDevice, OnChainKms, OnChainKmsContract, OnChainOsImage,
};
pub use legacy::{LegacyCvmConfiguration, LegacyCvmPubkey};
pub use live::{
    CvmNetwork, CvmSystemInfo, CvmUserConfig, DiskInfo, FirewallStatus, MappedPort, NetworkConfig,
    NetworkConfigPort, PortMappingEntry, SystemInfo, UpdateNetworkConfigRequest, UpdatePortMappingsRequest,
};
pub use names::{CvmIdentifier, CvmName, InvalidName, MAX_NAME, MIN_NAME};
pub use oauth::{OauthError, OauthRevokeRequest, OauthToken, OauthTokenRequest, StepUpRequest, SteppedUp};
pub use operations::{CancelResponse, EnvsUpdate, Operation, OperationEvent, OperationPage};
pub use os_images::{AdminOsImage, AvailableOsImage, AvailableOsImages, OsVersion};
pub use owners::{
    AppApprovals, AppOwner, AppOwners, Approval, ApprovalCvm, ApprovalRequest, ApprovalSigner,
    OwnersStatement, SetAppOwnersRequest, StatedOwners, UntoldRevocation,
};
pub use pages::{CursorPage, Page, Pagination};
pub use people::{AdminUser, CreateUserRequest, UserLink, UserLinkRequest, UserOpenidRequest};
pub use refs::{
    CvmNetworkUrls, CvmNode, KmsInfo, ManagedUser, NodeRef, NodeStatus, NodeType, TeepodMeta, UserRef,
    UserType, WorkspaceRef, WorkspaceType,
};
pub use replicas::{AddInstanceRequest, ReplicateRequest, WorkloadRequest};
pub use requests::{
    BatchStatusRequest, CreateCvmRequest, CreateTokenRequest, DeviceId, GpuConfig, Instant, InvalidDeviceId,
    InvalidSealedEnv, KmsType, MAX_SEALED_BYTES, MIN_SEALED_BYTES, MaintenanceRequest, Optional, Parsed,
    PortMapping, ProvisionAgentAppRequest, ProvisionAppRequest, RefreshTokenRequest, RestartRequest,
    SealedEnv, UpdateCvmEnvsRequest,
};
pub use revisions::{
    CvmRef, CvmType, RedeployRequest, Redeployment, Revision, RevisionDetail, RevisionDiff, RevisionDocument,
    RevisionPage, RevisionStanding,
};
pub use rollouts::{
    AbortRolloutRequest, DrainedCvm, NodeDrain, Rollout, RolloutMember, RolloutOptions, RolloutPage,
    RolloutRequest,
};
pub use scopes::{InvalidScope, KeyScope};
pub use ssh_keys::{
    CvmSshKey, CvmSshKeys, GithubProfileImportRequest, GithubProfileImportResponse, GithubSyncResponse,
    SshKey, SshKeyCreateRequest, UpdateCvmSshKeysRequest,
};
pub use updates::{
    ApplyComposeRequest, BatchStopError, BatchStopRequest, BatchStopResponse, ComposeProvision, CvmUpdate,
    LegacyComposeRequest, LegacyComposeUpdate, ListedRequest, OsImageRequest, PreLaunchScriptStatus,
    RenameRequest, ReplaceComposeRequest, ResizeRequest, ScheduledDeleteRequest, UpdateCvmRequest,
    VisibilityRequest,
};
pub use version::{ApiVersion, NotADate, VERSION_HEADER};
pub use webhooks::{
    CreateWebhookRequest, ReplayWebhookRequest, UpdateWebhookRequest, Webhook, WebhookAttempt,
    WebhookDelivery, WebhookEventType, WebhookFigures, WebhookReplay,
};

#[cfg(test)]
mod tests;
