// ConductorActor: the conductor's side of one answer at a time: begins it, logs what the judge
// commits, hands the tokens on, and stops the stages when somebody has had enough.
// Receives: Verdict (from the judge).   Sends: Begin (cold), Stop.
//
//              start()                 Verdict: commit counts, text goes on
//   [Idle] ---------------> [Running] -------------------------------------+
//     ^                       |   ^                                        |
//     |   Verdict that ends   |   +----------------------------------------+
//     +-----------------------+
//     |   token callback says Stop, or cancelled()          (Stop goes to every stage)
//     +-----------------------+
//
// It ends its loop when it becomes Idle, so the owner can run the loop once per answer. The text
// grows from answer to answer; what the stages still hold of it in their KV caches is reused.
// Threads: all calls come from its loop, or between two runs of it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "actors/commit_log.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/request.hpp"
#include "runtime/actor.hpp"

namespace paceline {

/// Whom the conductor talks to.
struct ConductorPlan {
    StageId judge;                  // the last segment
    std::vector<StageId> begin_to;  // every stage; those that act on a Begin first stand last
    Micros cancel_poll{20'000};     // how often cancelled() is asked
};

struct AnswerFigures {
    std::int32_t prompt_tokens = 0;  // not reused from the KV cache
    std::int32_t generated_tokens = 0;
    std::int64_t waves = 0;
    std::int64_t proposed_tokens = 0;  // rows of the waves but for their roots
    std::int64_t accepted_tokens = 0;
    Micros begun{0};
    Micros first_token{0};  // when it came; times are of the context's clock
    Micros last_token{0};
    msg::Finish finish = msg::Finish::No;  // No: stopped from outside
};

class ConductorActor final : public Actor {
public:
    using OnToken = PlainDecoder::OnToken;

    explicit ConductorActor(ConductorPlan plan) : plan_{std::move(plan)} {}

    /// What the next run of the loop answers: `more` is appended to the text; `request` brings
    /// everything but the text. Errors: those of validate(Request); the text stays as it was.
    Status prepare(std::span<const TokenId> more,
                   Request request,
                   int vocab_size,
                   std::int32_t kv_slots,
                   OnToken on_token,
                   std::function<bool()> cancelled);
    /// Begins the prepared answer. Called by on_start() for the first; by the owner, inside the
    /// loop's thread, for those after it.
    void begin();

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;

    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    [[nodiscard]] const AnswerFigures& figures() const { return figures_; }
    /// Forgets the text.
    void reset();

private:
    void follow(const msg::Verdict& verdict);
    void send_stop();
    void end(msg::Finish finish);
    void watch_for_cancel(std::uint64_t answer);

    ConductorPlan plan_;
    StageContext* context_ = nullptr;
    CommitLog log_;
    RequestId request_id_{1};
    Attempt attempt_;
    Request request_;
    OnToken on_token_;
    std::function<bool()> cancelled_;
    std::vector<TokenId> text_;
    std::int32_t held_ = 0;     // leading tokens of the text that the stages have in their caches
    std::uint64_t answer_ = 0;  // counts answers, so that an old timer knows it is old
    bool running_ = false;
    bool known_ = false;  // the log and the stages know the request
    AnswerFigures figures_;
};

}  // namespace paceline
