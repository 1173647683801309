// ConductorActor: the conductor's side of all answers: takes orders, logs the tokens that the
// verifier commits, and passes them to the client.
// Receives: Verdict and Scores (from the verifier), BeginWanted (control, from drafts), PagesWanted
// (control, from the first segment).
// Sends: Begin (control), Stop.
//
// What happens to a request from its submission to its end, also after the loss of a stage, is
// request_lifecycle.hpp. This class is the conductor's inbox, and what its users call.
// A stage that sends an invalid verdict (verdict_checks.hpp) is replaced; the verdict has no other
// effect. A token is passed to the client only after the log took it, so a replay can neither
// repeat nor skip one.
// Threads: all calls come from its loop, or between two runs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/conductor/answer_order.hpp"
#include "actors/conductor/conductor_plan.hpp"
#include "actors/conductor/request_lifecycle.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct LostStage {
    std::string name;
    bool essential = false;  // nothing is decoded until it is back
};

class ConductorActor final : public Actor {
public:
    /// `vocab_size` and `kv_slots` are the stages': what a request is checked against.
    ConductorActor(const ConductorPlan& plan, int vocab_size, std::int32_t kv_slots);

    /// Accepts an order: it runs as soon as the pipeline is complete and the KV caches have room
    /// for its text beside the running ones, in the order of submission. Call before the loop
    /// runs, between two runs, or from a callback. Errors: those of validate(Request); BadArgument
    /// while draining, or with too many requests (those not closed count).
    Result<RequestId> submit(AnswerOrder order);
    /// Ends it as if its callback had said Stop; on_end is called before this returns. Unknown or
    /// ended: nothing happens.
    void cancel(RequestId request);
    /// From now on no order is accepted; open requests may finish within `limit` and are then
    /// stopped with an error.
    void drain(Micros limit);
    /// Forgets an ended request's text. Unknown or open: nothing happens.
    void close(RequestId request);
    /// Ends the loop after the current handler.
    void leave();
    /// Calls `call` each `period`, from the loop, for as long as it runs.
    void call_every(Micros period, std::function<void()> call);

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    /// Prompt and answer of a request, as passed to the client. Empty if it is unknown. Valid until
    /// it is closed.
    [[nodiscard]] std::span<const TokenId> text(RequestId request) const;
    [[nodiscard]] std::size_t open_requests() const;  // waiting or running
    [[nodiscard]] std::vector<LostStage> lost_stages() const;
    [[nodiscard]] bool pipeline_whole() const { return lifecycle_.stages().is_pipeline_whole(); }
    [[nodiscard]] std::uint64_t fenced() const { return fenced_; }  // verdicts of old attempts

private:
    [[nodiscard]] RequestTable& requests() { return lifecycle_.requests(); }
    [[nodiscard]] Status check(const msg::Verdict& verdict, const RequestRecord& record) const;
    void follow(const msg::Verdict& verdict);
    void follow(const msg::Scores& scores);
    void deliver_tokens(RequestId request, std::uint64_t turn, const msg::Verdict& verdict);
    void stop_all(const Status& status);
    void watch_for_cancel(RequestId request, std::uint64_t turn);
    [[nodiscard]] bool is_cancelled(RequestId request, std::uint64_t turn);
    void arm(Micros period, const std::shared_ptr<std::function<void()>>& call);

    StageContext* context_ = nullptr;
    StageId verifier_;
    Micros cancel_poll_;
    int vocab_size_;
    std::int32_t kv_slots_;
    RequestLifecycle lifecycle_;
    std::uint64_t fenced_ = 0;
    bool draining_ = false;
    std::vector<std::pair<Micros, std::shared_ptr<std::function<void()>>>> periodic_;  // not armed
};

}  // namespace paceline
