#include "actors/draft/draft_actor.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "actors/protocol/counters.hpp"
#include "actors/protocol/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {
namespace {

constexpr std::int32_t kAnySlots = std::numeric_limits<std::int32_t>::max();

MessageLimits limits_of(const DraftPlan& plan) {
    return {.vocab_size = plan.vocab_size, .kv_slots = kAnySlots, .context = kAnySlots};
}

Error unexpected(StageId from, const std::string& what) {
    return Error{Errc::Protocol, "stage " + std::to_string(from.value) + " sent a draft " + what};
}

}  // namespace

DraftActor::DraftActor(DraftPlan plan, DraftTools tools) : plan_{plan}, tools_{std::move(tools)} {
    PACE_CHECK(tools_.model != nullptr || tools_.source, "a draft with nothing to think with");
}

DraftActor::~DraftActor() = default;

void DraftActor::on_control(StageId /*from*/, const control::Message& message) {
    const auto* begun = std::get_if<control::Begin>(&message);
    if (begun == nullptr) return;
    if (const Status status = begin(*begun); !status) context_->fail(status.error());
}

void DraftActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    if (const Status status = receive(from, kind, bytes); !status) context_->fail(status.error());
}

DraftActor::WorkPtr DraftActor::find(const msg::Route& route) const {
    const auto found = works_.find(route.request);
    if (found == works_.end() || found->second->attempt != route.attempt) return nullptr;
    return found->second;
}

bool DraftActor::current(const WorkPtr& work) const {
    const auto found = works_.find(work->request);
    return found != works_.end() && found->second == work;
}

Status DraftActor::begin(const control::Begin& begin) {
    if (!gate_.is_news(begin.request, begin.attempt)) return {};
    const Result<Request> decoded = decode_request(begin.payload);
    if (!decoded) return decoded.error();
    const Request& request = decoded.value();
    if (Status valid = validate(request, plan_.vocab_size, kAnySlots); !valid) return valid;
    stop(begin.request);
    if (works_.size() >= kRequestsMax) {
        // One of them is over, the word is on its way. This one goes on without a draft.
        gate_.begun(begin.request, begin.attempt);
        return receive_due();
    }
    const auto work = std::make_shared<DraftWork>(begin, request, plan_, tools_);
    works_[begin.request] = work;
    gate_.begun(begin.request, begin.attempt);
    work->cancel.watch(context_->void_word(begin.request),
                       CancelBoard::mark_of(begin.request, begin.attempt));
    fault_point(FaultPoint::BeginTaken);
    context_->set(gauges::kRequests, works_.size());
    go_on(work);
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
    if (change == PeerChange::Lost) gate_.forget(peer);
    if (peer == plan_.correct) notes_.clear();  // their slots went with the channel
    if (peer != plan_.first_segment && peer != plan_.judge) return;
    // Without these no attempt that is known here can be continued; the next one has its Begin.
    while (!works_.empty()) stop(works_.begin()->first);
}

void DraftActor::on_room(StageId to) {
    if (to == plan_.correct) (void)flush_notes();
    if (to != plan_.first_segment) return;
    for (const auto& [id, work] : std::map{works_}) {
        if (work->unsent) send(work, *std::exchange(work->unsent, std::nullopt));
    }
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
        case msg::Kind::Verdict:
            return receive_verdict(from, bytes);
        case msg::Kind::Stop:
            return receive_stop(from, bytes);
        case msg::Kind::Proposal:
            return receive_proposal(from, bytes);
        case msg::Kind::TensorNote:
            return receive_note(from, bytes);
        case msg::Kind::Wave:
            break;
    }
    return unexpected(from, "a message of kind " + std::to_string(kind));
}

Status DraftActor::receive_verdict(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::Verdict> verdict = decode_message<msg::Verdict>(bytes);
    if (!verdict) return verdict.error();
    if (from != plan_.judge) return unexpected(from, "a verdict, but is not the judge");
    if (Status checked = check_message(verdict.value(), limits_of(plan_)); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Verdict);
    const Result<Age> age = admit(from, kind, verdict.value().route, bytes);
    if (!age) return age.error();
    if (age.value() == Age::Current) follow(verdict.value());
    return {};
}

Status DraftActor::receive_stop(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::Stop> stopped = decode_message<msg::Stop>(bytes);
    if (!stopped) return stopped.error();
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Stop);
    const Result<Age> age = admit(from, kind, stopped.value().route, bytes);
    if (!age) return age.error();
    if (age.value() == Age::Current) stop(stopped.value().route.request);
    return {};
}

Status DraftActor::receive_proposal(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::Proposal> decoded = decode_message<msg::Proposal>(bytes);
    if (!decoded) return decoded.error();
    const msg::Proposal& proposal = decoded.value();
    const bool is_trunk = from == plan_.trunk_from;
    const bool is_branches = from == plan_.branches_from;
    if (!is_trunk && !is_branches && from != plan_.exit) {
        return unexpected(from, "a proposal, but is neither its exit nor its draft or correct");
    }
    if (Status checked = check_message(proposal, limits_of(plan_)); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Proposal);
    // Held apart from verdicts, which a flood of hints must not push out.
    const Age age = gate_.admit_hint(from, kind, proposal.route, bytes);
    if (age == Age::Stale) count_fenced(*context_, from, kind, proposal.route);
    if (age != Age::Current) return {};
    const WorkPtr work = find(proposal.route);
    if (!work) return {};
    if (is_trunk) {
        work->hear_trunk(proposal);
    } else if (is_branches) {
        work->hear_branches(proposal);
    } else {
        work->hear_names(proposal);
    }
    go_on(work);
    return {};
}

/// Keys and values of a token of Draft's trunk. They may be late or useless; the slot that they
/// lie in goes back at once in any case.
Status DraftActor::receive_note(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::TensorNote> decoded = decode_message<msg::TensorNote>(bytes);
    if (!decoded) return decoded.error();
    if (from != plan_.trunk_from) return unexpected(from, "a tensor note; none is expected");
    const msg::TensorNote& note = decoded.value();
    Status taken = take_note(from, note);
    if (TensorConsumer* tensors = context_->tensors_from(from); tensors != nullptr) {
        tensors->release({note.tensor, note.tensor_generation});
    }
    return taken;
}

Status DraftActor::take_note(StageId from, const msg::TensorNote& note) {
    const auto kind = static_cast<std::uint16_t>(msg::Kind::TensorNote);
    const Age age = gate_.look(from, note.route);
    if (age == Age::Stale) count_fenced(*context_, from, kind, note.route);
    const WorkPtr work = age == Age::Current ? find(note.route) : nullptr;
    TensorConsumer* tensors = context_->tensors_from(from);
    if (!work || tensors == nullptr || tools_.model == nullptr) return {};
    const std::size_t expected = tools_.model->kv_bytes();
    if (expected == 0) return {};
    if (note.role != msg::TensorRole::Keys || msg::tensor_bytes(note) != expected) {
        return unexpected(from, "keys and values in a tensor [" + std::to_string(note.rows) + ", " +
                                    std::to_string(note.row_elements) + "] that should have " +
                                    std::to_string(expected) + " bytes");
    }
    const Result<std::span<const std::byte>> kv =
        tensors->view({note.tensor, note.tensor_generation}, expected);
    if (!kv) return kv.error();
    const Position position = note.first_position;
    bool used = false;
    if (const auto node = work->trunk_node_at(position); node) {
        used = tools_.model->write_kv(*work->text, *node, kv.value());
    } else if (work->trunk_is_text_at(position)) {
        used = tools_.model->write_kv_at(*work->text, position, kv.value());
    }
    figures_.kv_taken += used ? 1 : 0;
    return {};
}

void DraftActor::stop(RequestId request) {
    const auto found = works_.find(request);
    if (found == works_.end()) return;
    const WorkPtr work = found->second;  // a job keeps its text and source alive until it ends
    work->cancel.cancel();
    if (pass_ && pass_->works.size() == 1 && pass_->works.front() == work) {
        pass_->given_up = true;
        pass_->cancel.cancel();
    }
    works_.erase(found);
    context_->set(gauges::kRequests, works_.size());
}

void DraftActor::follow(const msg::Verdict& verdict) {
    const WorkPtr work = find(verdict.route);
    if (!work) return;
    const DraftWork::Fit fit = work->fit(verdict);
    if (fit == DraftWork::Fit::Old) return;
    // A gap: said while this stage was lost, or too slow to hear it.
    if (fit == DraftWork::Fit::Gap || verdict.finish != msg::Finish::No) {
        return stop(work->request);
    }
    work->worth.judged(context_->now(), static_cast<int>(verdict.count));
    work->follow(verdict);
    go_on(work);
}

}  // namespace paceline
