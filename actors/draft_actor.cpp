#include "actors/draft_actor.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/cancel_board.hpp"

namespace paceline {
namespace {

constexpr std::int32_t kAnySlots = std::numeric_limits<std::int32_t>::max();

MessageLimits limits_of(const DraftPlan& plan) {
    return {.vocab_size = plan.vocab_size, .kv_slots = kAnySlots, .context = kAnySlots};
}

}  // namespace

DraftActor::DraftActor(DraftPlan plan, DraftSourceFactory sources)
    : plan_{plan}, sources_{std::move(sources)} {}

void DraftActor::on_control(StageId /*from*/, const control::Message& message) {
    const auto* begun = std::get_if<control::Begin>(&message);
    if (begun == nullptr) return;
    if (const Status status = begin(*begun); !status) context_->fail(status.error());
}

void DraftActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    if (const Status status = receive(from, kind, bytes); !status) context_->fail(status.error());
}

std::shared_ptr<DraftActor::Work> DraftActor::find(const msg::Route& route) const {
    const auto found = works_.find(route.request);
    if (found == works_.end() || found->second->attempt != route.attempt) return nullptr;
    return found->second;
}

Status DraftActor::begin(const control::Begin& begin) {
    if (!gate_.is_news(begin.request, begin.attempt)) return {};
    const Result<Request> decoded = decode_request(begin.payload);
    if (!decoded) return decoded.error();
    const Request& request = decoded.value();
    if (Status valid = validate(request, plan_.vocab_size, kAnySlots); !valid) return valid;
    stop(begin.request);
    if (works_.size() >= kRequestsMax) {
        // One of them is over, the word is on its way. Until then there is no draft for this one.
        gate_.begun(begin.request, begin.attempt);
        return receive_due();
    }
    auto work = std::make_shared<Work>();
    work->request = begin.request;
    work->attempt = begin.attempt;
    work->gamma = request.gamma;
    work->finish = request.finish_rule();
    work->root_position = static_cast<Position>(request.text.size()) - 1;
    work->root_token = request.text.back();
    work->source = sources_(request);
    work->source->commit(request.text);
    works_[begin.request] = work;
    gate_.begun(begin.request, begin.attempt);
    work->cancel.watch(context_->void_word(begin.request),
                       CancelBoard::mark_of(begin.request, begin.attempt));
    fault_point(FaultPoint::BeginTaken);
    context_->set(Gauge::Requests, works_.size());
    draft(work);
    return receive_due();
}

/// Handles what came ahead of its Begin.
Status DraftActor::receive_due() {
    for (const InboxGate::Held& held : gate_.take_due()) {
        if (Status received = receive(held.from, held.kind, held.bytes); !received) return received;
    }
    return {};
}

void DraftActor::on_peer(StageId peer, PeerChange change) {
    if (peer != plan_.first_segment && peer != plan_.judge) return;
    // Without these no attempt that is known here can be continued; the next one has its Begin.
    if (change == PeerChange::Lost) gate_.forget(peer);
    while (!works_.empty()) stop(works_.begin()->first);
}

Result<Age> DraftActor::admit(StageId from,
                              std::uint16_t kind,
                              const msg::Route& route,
                              std::span<const std::byte> bytes) {
    Result<Age> age = gate_.admit(from, kind, route, bytes);
    if (age.ok() && age.value() == Age::Stale) count_fenced(*context_, from, kind, route);
    return age;
}

Status DraftActor::receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    switch (static_cast<msg::Kind>(kind)) {
        case msg::Kind::Verdict: {
            const Result<msg::Verdict> verdict = decode_message<msg::Verdict>(bytes);
            if (!verdict) return verdict.error();
            if (from != plan_.judge) break;
            if (Status checked = check_message(verdict.value(), limits_of(plan_)); !checked) {
                return checked;
            }
            const Result<Age> age = admit(from, kind, verdict.value().route, bytes);
            if (!age) return age.error();
            if (age.value() == Age::Current) follow(verdict.value());
            return {};
        }
        case msg::Kind::Stop: {
            const Result<msg::Stop> stopped = decode_message<msg::Stop>(bytes);
            if (!stopped) return stopped.error();
            const Result<Age> age = admit(from, kind, stopped.value().route, bytes);
            if (!age) return age.error();
            if (age.value() == Age::Current) stop(stopped.value().route.request);
            return {};
        }
        case msg::Kind::TensorNote:
            return Error{Errc::Protocol, "stage " + std::to_string(from.value) +
                                             " sent a draft a tensor note; none is expected"};
        case msg::Kind::Proposal:
        case msg::Kind::Wave:
            break;
    }
    return Error{Errc::Protocol, "stage " + std::to_string(from.value) +
                                     " sent a draft a message of kind " + std::to_string(kind)};
}

void DraftActor::stop(RequestId request) {
    const auto found = works_.find(request);
    if (found == works_.end()) return;
    found->second->cancel.cancel();  // a job keeps its Work alive until it ends
    works_.erase(found);
    context_->set(Gauge::Requests, works_.size());
}

void DraftActor::follow(const msg::Verdict& verdict) {
    const std::shared_ptr<Work> work = find(verdict.route);
    if (!work || verdict.base <= work->root_position) return;
    const bool gap = verdict.base != work->root_position + 1;  // said while this stage was lost
    if (gap || verdict.finish != msg::Finish::No) return stop(work->request);
    const std::span tokens{verdict.tokens.data(), verdict.count};
    if (work->source_busy) {
        work->cancel.cancel();
        work->uncommitted.insert(work->uncommitted.end(), tokens.begin(), tokens.end());
    } else {
        work->source->commit(tokens);
    }
    if (!tokens.empty()) work->root_token = tokens.back();
    work->root_position += static_cast<Position>(verdict.count);
    draft(work);
}

void DraftActor::draft(const std::shared_ptr<Work>& work) {
    work->state = State::Drafting;
    if (work->source_busy) return;  // finish_job() comes back to here
    // The target's own token takes the last place, so one guess fewer can be of use.
    const std::int32_t useful = work->finish.room_at(work->root_position + 1) - 1;
    const std::int32_t gamma = std::min(work->gamma, useful);
    if (gamma <= 0) {
        work->state = State::Waiting;
        return;
    }
    const Position root = work->root_position;
    work->cancel.reset();
    if (work->source->cost() == DraftCost::Instant) {
        finish_job(work, root, work->source->propose(gamma, work->cancel));
        return;
    }
    submit_job(work, gamma);
}

void DraftActor::submit_job(const std::shared_ptr<Work>& work, std::int32_t gamma) {
    work->source_busy = true;
    const Position root = work->root_position;
    auto tokens = std::make_shared<std::vector<TokenId>>();
    context_->submit(
        {.name = "draft",
         .request = work->request,
         .id = static_cast<std::uint32_t>(root),
         .rows = static_cast<std::uint32_t>(gamma),
         .context = root + 1 + gamma},
        [work, gamma, tokens] {
            *tokens = work->source->propose(gamma, work->cancel);
            return work->cancel.cancelled() ? JobOutcome::Cancelled : JobOutcome::Done;
        },
        [this, work, root, tokens](JobOutcome outcome) {
            // Cancelled, and not by a verdict: the conductor has declared the attempt void.
            const bool is_void = outcome == JobOutcome::Cancelled && root == work->root_position;
            if (is_void && find({work->request, work->attempt, {}}) == work) stop(work->request);
            finish_job(work, root, std::move(*tokens));
        });
}

void DraftActor::finish_job(const std::shared_ptr<Work>& work,
                            Position root,
                            std::vector<TokenId> tokens) {
    work->source_busy = false;
    if (!work->uncommitted.empty()) {
        work->source->commit(work->uncommitted);
        work->uncommitted.clear();
    }
    const auto found = works_.find(work->request);
    if (found == works_.end() || found->second != work || work->state != State::Drafting) return;
    if (root != work->root_position) {
        ++figures_.outdated;
        draft(work);
        return;
    }
    work->state = State::Waiting;
    send_proposal(*work, tokens);
}

void DraftActor::send_proposal(const Work& work, std::span<const TokenId> tokens) {
    msg::Proposal proposal{};
    proposal.route = {.request = work.request, .attempt = work.attempt, .epoch = context_->epoch()};
    proposal.root_position = work.root_position;
    proposal.root_token = work.root_token;
    for (const TokenId token : tokens) {
        // A draft's vocabulary may be padded beyond the target's: such a guess ends the chain.
        if (token < 0 || token >= plan_.vocab_size || proposal.count >= kGammaMax) break;
        proposal.tokens[proposal.count++] = token;
    }
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Proposal);
    const auto bytes = std::as_bytes(std::span{&proposal, 1});
    if (context_->send(plan_.first_segment, kind, bytes) == Push::Full) {
        ++figures_.dropped;  // only a hint: the target goes on without it
        return;
    }
    context_->trace({.kind = TraceKind::Proposal,
                     .request = work.request,
                     .attempt = work.attempt,
                     .position = work.root_position,
                     .count = proposal.count});
    ++figures_.proposals;
    figures_.tokens += proposal.count;
}

}  // namespace paceline
