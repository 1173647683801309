#include "actors/conductor_actor.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

Status ConductorActor::prepare(std::span<const TokenId> more,
                               Request request,
                               int vocab_size,
                               std::int32_t kv_slots,
                               OnToken on_token,
                               std::function<bool()> cancelled) {
    PACE_CHECK(!running_, "one answer at a time");
    request.text = text_;
    request.text.insert(request.text.end(), more.begin(), more.end());
    // The last token of the text is the root: it is fed with the first wave, so never reused.
    request.reuse = std::min(held_, static_cast<std::int32_t>(request.text.size()) - 1);
    if (request.reuse < 0) request.reuse = 0;
    if (Status checked = validate(request, vocab_size, kv_slots); !checked) return checked;
    request_ = std::move(request);
    on_token_ = std::move(on_token);
    cancelled_ = std::move(cancelled);
    return {};
}

void ConductorActor::on_start(StageContext& context) {
    context_ = &context;
    begin();
}

void ConductorActor::begin() {
    PACE_CHECK(context_ != nullptr, "the loop starts the actor first");
    const Result<Attempt> attempt =
        known_ ? log_.extend(request_id_, request_.text) : log_.open(request_id_, request_.text);
    if (!attempt) return context_->fail(attempt.error());
    known_ = true;
    attempt_ = attempt.value();
    text_ = request_.text;
    figures_ = {};
    figures_.prompt_tokens = static_cast<std::int32_t>(text_.size()) - request_.reuse;
    figures_.begun = context_->now();
    running_ = true;
    ++answer_;
    const std::vector<std::byte> payload = encode_request(request_);
    for (const StageId stage : plan_.begin_to)
        context_->post(stage, control::Begin{request_id_, attempt_, payload});
    watch_for_cancel(answer_);
}

void ConductorActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    if (from != plan_.judge || kind != static_cast<std::uint16_t>(msg::Kind::Verdict) ||
        bytes.size() != sizeof(msg::Verdict)) {
        return context_->fail(
            {Errc::Protocol, "stage " + std::to_string(from.value) +
                                 " sent the conductor a message of kind " + std::to_string(kind) +
                                 "; only verdicts of the last segment are expected"});
    }
    msg::Verdict verdict;
    std::memcpy(&verdict, bytes.data(), sizeof verdict);
    // A wave whose root has no number among its logits commits nothing and says so.
    const bool failed = verdict.finish == msg::Finish::Failed;
    if ((verdict.count < 1 && !failed) || verdict.count > verdict.tokens.size() ||
        verdict.wave_rows > kWaveRowsMax) {
        return context_->fail({Errc::Protocol, "a verdict claims " + std::to_string(verdict.count) +
                                                   " tokens of " +
                                                   std::to_string(verdict.wave_rows) + " rows"});
    }
    follow(verdict);
}

void ConductorActor::follow(const msg::Verdict& verdict) {
    const Commit commit = log_.commit(verdict);
    if (commit.kind == CommitKind::Stale || !running_) return;  // of an answer that is over
    if (commit.kind == CommitKind::Gap) {
        return context_->fail(
            {Errc::Protocol, "a verdict starts at position " + std::to_string(verdict.base) +
                                 ", the log ends at " + std::to_string(text_.size())});
    }
    ++figures_.waves;
    figures_.proposed_tokens += verdict.wave_rows > 0 ? verdict.wave_rows - 1 : 0;
    if (!commit.tokens.empty()) {
        figures_.accepted_tokens += static_cast<std::int64_t>(commit.tokens.size()) - 1;
    }
    if (figures_.generated_tokens == 0) figures_.first_token = context_->now();
    // All committed tokens but the last, the new root, have been through the target.
    held_ = static_cast<std::int32_t>(text_.size() + commit.tokens.size()) - 1;
    for (const TokenId token : commit.tokens) {
        text_.push_back(token);
        ++figures_.generated_tokens;
        figures_.last_token = context_->now();
        if (on_token_(token) == Go::On) continue;
        send_stop();
        held_ = std::min(held_, static_cast<std::int32_t>(text_.size()));
        return end(msg::Finish::No);
    }
    if (commit.finish != msg::Finish::No) end(commit.finish);
}

void ConductorActor::on_control(StageId /*from*/, const control::Message& /*message*/) {}

void ConductorActor::send_stop() {
    const msg::Stop stop{{request_id_, attempt_, context_->epoch()}};
    for (const StageId stage : plan_.begin_to) {
        // Urgent frames have slots of their own; a stage that never empties its ring is dead, and
        // the supervisor says so.
        (void)context_->send(stage, static_cast<std::uint16_t>(msg::Kind::Stop),
                             std::as_bytes(std::span{&stop, 1}));
    }
}

void ConductorActor::end(msg::Finish finish) {
    figures_.finish = finish;
    running_ = false;
    context_->stop();
}

void ConductorActor::watch_for_cancel(std::uint64_t answer) {
    context_->schedule(plan_.cancel_poll, [this, answer] {
        if (!running_ || answer != answer_) return;
        if (!cancelled_()) return watch_for_cancel(answer);
        send_stop();
        end(msg::Finish::No);
    });
}

void ConductorActor::reset() {
    PACE_CHECK(!running_, "one answer at a time");
    text_.clear();
    held_ = 0;
}

}  // namespace paceline
