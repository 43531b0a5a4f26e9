//! How a new node becomes part of an installation.

use cloister_fleet_tls::{Credentials, FleetTlsError, JoinToken, enrolment_client_config, make_node_request};
use cloister_node_api::{EnrolRequest, EnrolResponse, paths};

use crate::control_plane::{CallError, ControlPlaneClient};

/// Why a node was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// A key could not be made.
    #[error("cannot make a key for the node")]
    Key(#[from] FleetTlsError),
    /// The control plane did not answer or refused.
    #[error("the control plane did not enrol the node; `cloister nodes invite` prints a fresh join token")]
    Call(#[from] CallError),
}

/// Gets a certificate for a new node from the control plane at `host:port`. `names` are the hosts and
/// addresses under which the control plane will reach the node.
pub async fn enrol(
    control_plane: &str,
    token: &JoinToken,
    name: &str,
    names: Vec<String>,
) -> Result<Credentials, EnrolError> {
    let client = ControlPlaneClient::new(control_plane.to_owned(), enrolment_client_config(token.clone())?)?;
    let (private_key, certificate_request) = make_node_request()?;
    let request = EnrolRequest {
        join_token: token.to_string(),
        name: name.to_owned(),
        certificate_request,
        subject_alternative_names: names,
    };
    let answer: EnrolResponse = client.post(paths::ENROL, &request).await?;
    Ok(Credentials { certificate: answer.certificate, private_key, authority: answer.authority })
}
