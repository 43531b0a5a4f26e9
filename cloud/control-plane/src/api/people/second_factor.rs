//! `/account/second-factor` and `/account/backup-codes`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, PreEscaped, html};
use qrcode::QrCode;
use qrcode::render::svg;
use zeroize::Zeroizing;

use super::account::{self, is_not_known};
use super::form::Fields;
use super::guess::{Refusal, Target, presented, take};
use super::markup::{Page, code_field};
use super::session::Person;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::people::{Enrolment, Presented};
use crate::store::SecondFactorRow;

const TITLE: &str = "Set up an authenticator";
const WRONG: &str = "This code is wrong, too old, or was used before, and nothing was changed.";
const UNCONFIRMED: &str =
    "This code is not the one that your authenticator should show. Is the time of your device right?";
/// Pixels of the image at least, in both directions.
const IMAGE_PIXELS: u32 = 240;

/// Makes a secret, which works when a code of it was typed in.
pub(super) async fn begin(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    if let Some(refusal) = person.refuses(&fields) {
        return Ok(refusal);
    }
    let target = Target::login(&person.row.username);
    if let Some(refusal) = is_not_known(&api, &person, &target, &fields, "password").await? {
        return Ok(refusal);
    }
    let sealed = api.people.new_second_factor(person.row.id, api.random).map_err(ApiError::from)?;
    let work = async {
        let mut change = api.store.change().await?;
        target.was_right(&mut change).await?;
        change.begin_second_factor(person.row.id, &sealed).await?;
        change.commit().await
    };
    person.does(&api, "begin_second_factor", work).await?;
    Ok(Redirect::to("/account/second-factor").into_response())
}

/// A second factor that waits for its first code.
async fn waiting(api: &Api, person: &Person) -> ApiResult<Option<(SecondFactorRow, Enrolment)>> {
    let row = api.store.second_factor(person.row.id).await?.filter(|row| row.confirmed_at_ms.is_none());
    let Some(row) = row else { return Ok(None) };
    let enrolment = api.people.enrolment(person.row.id, &person.row.username, &row.sealed_secret);
    Ok(Some((row, enrolment.map_err(ApiError::from)?)))
}

/// The secret for the authenticator, while it waits for its first code.
pub(super) async fn page(State(api): State<Api>, person: Person) -> ApiResult<Response> {
    Ok(match waiting(&api, &person).await? {
        Some((_, enrolment)) => shown(&person, &enrolment)?.into_response(),
        None => Redirect::to("/account").into_response(),
    })
}

fn shown(person: &Person, enrolment: &Enrolment) -> ApiResult<Page> {
    Ok(Page::new(
        TITLE,
        html! {
            p { "Let your authenticator read this image, or type the secret there: codes by time, six digits, 30 seconds." }
            (image(&enrolment.url)?)
            dl { dt { "Secret" } dd { (*enrolment.text) } }
            form method="post" action="/account/second-factor/confirm" {
                (person.field())
                (code_field("Code that the authenticator shows now", true))
                button type="submit" { "Use it from now on" }
            }
        },
    ))
}

fn image(url: &str) -> ApiResult<Markup> {
    let code = QrCode::new(url).map_err(|error| ApiError::internal(&error))?;
    let image = code.render::<svg::Color<'_>>().min_dimensions(IMAGE_PIXELS, IMAGE_PIXELS).build();
    // What stands before it is for files.
    let at = image.find("<svg").unwrap_or_default();
    Ok(PreEscaped(image.get(at..).unwrap_or_default().to_owned()))
}

/// Lets the second factor work, and shows backup codes.
pub(super) async fn confirm(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    if let Some(refusal) = person.refuses(&fields) {
        return Ok(refusal);
    }
    let Some((row, enrolment)) = waiting(&api, &person).await? else {
        return Ok(Redirect::to("/account").into_response());
    };
    let (id, now_ms) = (person.row.id, api.clock.now_ms());
    let typed = api.people.presented(id, &row.sealed_secret, fields.text("code"), now_ms);
    let Some(Presented::Step(step)) = typed.map_err(ApiError::from)? else {
        let page = shown(&person, &enrolment)?.refused(StatusCode::FORBIDDEN, UNCONFIRMED);
        return Ok(page.into_response());
    };
    let (codes, hashes) = api.people.backup_codes(id, api.random).map_err(ApiError::from)?;
    let work = async {
        let mut change = api.store.change().await?;
        if !change.confirm_second_factor(id, &row.sealed_secret, now_ms).await? {
            return ApiResult::Ok(false);
        }
        change.take_step(id, step).await?;
        change.set_backup_codes(id, &hashes).await?;
        change.commit().await?;
        Ok(true)
    };
    if !person.does(&api, "confirm_second_factor", work).await? {
        return Ok(Redirect::to("/account").into_response());
    }
    Ok(backup_codes(&codes).into_response())
}

fn backup_codes(codes: &[Zeroizing<String>]) -> Page {
    Page::new(
        "Backup codes",
        html! {
            p { "Each of these works once, where a code of your authenticator is asked for. Keep them where you find them \
                 without your device; they are not shown again." }
            ul { @for code in codes { li { (**code) } } }
            p { a href="/account" { "Go to your account" } }
        },
    )
}

/// What somebody presents who changes the second factor; the refusal, if it cannot be right.
async fn checked(
    api: &Api,
    person: &Person,
    target: &Target,
    fields: &Fields,
) -> ApiResult<Result<Presented, Response>> {
    if let Some(refusal) = person.refuses(fields) {
        return Ok(Err(refusal));
    }
    if let Err(refusal) = target.take(api).await? {
        return Ok(Err(refusal.page(account::shown(api, person).await?, WRONG)));
    }
    match presented(api, &person.row, fields.text("code")).await? {
        Ok(Some(presented)) => Ok(Ok(presented)),
        Ok(None) => Ok(Err(Redirect::to("/account").into_response())),
        Err(_) => refused(api, person, target).await.map(Err),
    }
}

async fn refused(api: &Api, person: &Person, target: &Target) -> ApiResult<Response> {
    target.was_wrong(api, Some(person.row.id), person.request_id()).await?;
    Ok(Refusal::Wrong.page(account::shown(api, person).await?, WRONG))
}

/// Removes the second factor.
pub(super) async fn remove(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    let (id, target) = (person.row.id, Target::code(person.row.id));
    let presented = match checked(&api, &person, &target, &fields).await? {
        Ok(presented) => presented,
        Err(response) => return Ok(response),
    };
    let work = async {
        let mut change = api.store.change().await?;
        if !take(&mut change, id, Some(presented)).await? {
            return ApiResult::Ok(false);
        }
        target.was_right(&mut change).await?;
        change.remove_second_factor(id).await?;
        change.commit().await?;
        Ok(true)
    };
    if person.does(&api, "remove_second_factor", work).await? {
        return Ok(Redirect::to("/account").into_response());
    }
    refused(&api, &person, &target).await
}

/// Makes new backup codes; those from before work no longer.
pub(super) async fn renew_backup_codes(
    State(api): State<Api>,
    person: Person,
    fields: Fields,
) -> ApiResult<Response> {
    let (id, target) = (person.row.id, Target::code(person.row.id));
    let presented = match checked(&api, &person, &target, &fields).await? {
        Ok(presented) => presented,
        Err(response) => return Ok(response),
    };
    let (codes, hashes) = api.people.backup_codes(id, api.random).map_err(ApiError::from)?;
    let work = async {
        let mut change = api.store.change().await?;
        if !take(&mut change, id, Some(presented)).await? {
            return ApiResult::Ok(false);
        }
        target.was_right(&mut change).await?;
        change.set_backup_codes(id, &hashes).await?;
        change.commit().await?;
        Ok(true)
    };
    if person.does(&api, "renew_backup_codes", work).await? {
        return Ok(backup_codes(&codes).into_response());
    }
    refused(&api, &person, &target).await
}
