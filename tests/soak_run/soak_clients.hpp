// SoakClients: the users of a pipeline that is soaked: so many streams, each of which asks one
// request after the other. Prompts, sampling and lengths are drawn; some answers are stopped, some
// are cancelled, some ended conversations are kept and continued later.
//
// Each token is compared with plain decoding in this process when it arrives. An error
// is kept as a sentence and does not end the run.
//
//   one stream:   ask() -> tokens -> on_end -> ask() ...   until begin()'s time is over
//
// One conversation, the resting one, waits while kLongRest other requests come, and is then
// continued: longer than any table of the stages remembers.
//
// Borrows the session and the generator. One thread: that of the session; `tick` is called from it
// several times a second for as long as an answer is open.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "launch/session/generator.hpp"
#include "launch/session/pipeline_session.hpp"
#include "tests/soak_run/soak_plan.hpp"

namespace paceline::testing {

struct SoakTally {
    std::uint64_t whole = 0;       // answers that ended by themselves
    std::uint64_t stopped = 0;     // by their callback
    std::uint64_t cancelled = 0;   // in the middle, or before the first token
    std::uint64_t continued = 0;   // further turns of kept conversations, of all these
    std::uint64_t failed = 0;      // that ended with an error
    std::uint64_t long_rests = 0;  // continued after a long rest
    std::uint64_t tokens = 0;      // compared
    std::uint64_t replays = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t cached = 0;  // tokens of prompts that were in the KV caches
    std::uint64_t wrong = 0;   // tokens, ends and lengths
    [[nodiscard]] std::uint64_t requests() const { return whole + stopped + cancelled + failed; }
};

class SoakClients {
public:
    SoakClients(const SoakPlan& plan,
                int vocab_size,
                PipelineSession& session,
                TokenGenerator& oracle,
                std::function<void()> tick);
    SoakClients(const SoakClients&) = delete;
    SoakClients& operator=(const SoakClients&) = delete;

    /// Every stream asks, until `until`. On the session's thread (PipelineSession::call).
    void begin(SoakClock::time_point until);
    /// Cancels what is due; from the tick.
    void cancel_due(SoakClock::time_point now);
    [[nodiscard]] const SoakTally& tally() const { return tally_; }
    /// The first of what was wrong or failed, in words.
    [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
    /// The requests that are open, a line each.
    [[nodiscard]] std::string open_text() const;
    /// When the last token came, or an answer began or ended.
    [[nodiscard]] SoakClock::time_point last_progress() const { return progress_; }

private:
    enum class Cancel : std::uint8_t { Never, AtToken, Polled, Called };
    struct Stream {
        bool open = false;
        bool ended_by_client = false;
        bool rested = false;
        std::optional<RequestId> request;  // of the order that is open
        std::vector<TokenId> text;         // prompt and answer so far
        Cancel cancel = Cancel::Never;
        std::size_t cancel_at = 0;  // token
        SoakClock::time_point cancel_when{};
        std::uint64_t order = 0;
        std::vector<TokenId> expected;
        std::size_t given = 0;
    };

    void ask(Stream& stream);
    [[nodiscard]] std::vector<TokenId> take_kept(Stream& stream);
    [[nodiscard]] Request draw_request();
    void draw_prefix(Request& request);
    void draw_speculation(SpeculationLimits& limits);
    [[nodiscard]] std::vector<TokenId> draw_text();
    void draw_cancel(Stream& stream);
    [[nodiscard]] bool expect(Stream& stream, const Request& request);
    [[nodiscard]] Go take(Stream& stream, TokenId token);
    void end(Stream& stream, const AnswerStats& stats, const Status& status);
    void keep(std::vector<TokenId> text, bool rested);
    void complain(const std::string& sentence);
    [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    [[nodiscard]] bool chance(std::uint64_t percent) { return below(100) < percent; }

    SoakPlan plan_;
    int vocab_size_;
    PipelineSession& session_;
    TokenGenerator& oracle_;
    std::function<void()> tick_;
    std::mt19937_64 random_;
    std::vector<Stream> streams_;
    std::deque<std::vector<TokenId>> kept_;        // conversations, oldest first
    std::optional<std::vector<TokenId>> resting_;  // rests
    std::uint64_t rest_ends_ = 0;                  // at this order
    std::uint64_t orders_ = 0;
    SoakClock::time_point until_{};
    SoakClock::time_point progress_ = SoakClock::now();
    SoakTally tally_;
    std::vector<std::string> complaints_;
};

}  // namespace paceline::testing
