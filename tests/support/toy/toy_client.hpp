// ToyClient: streams of toy requests for a ConductorActor, and the check of what comes back.
//
// It is hosted in the conductor's own loop, in every world. It keeps `streams` answers going,
// gives a new order for each that ends, and ends the loop when enough was answered. Every token
// is compared as it comes with plain decoding's, so a lost or repeated token is noticed where it
// happens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "runtime/loop/actor.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {

inline constexpr StageId kToyClient{60000};

struct ToyLoad {
    int streams = 1;  // answers at once
    int answers = 1;  // at least; as many as there are streams anyway
    bool sampled = false;
    std::uint64_t seed = 1;
    std::int32_t max_tokens = 32;
    int texts = 8;  // different requests; the answers go through them in turn
    /// More answers are asked for as long as it answers true; empty: no.
    std::function<bool()> more = {};
    Micros tick{2'000};
};

class ToyClient final : public Actor {
public:
    ToyClient(ConductorActor& conductor, ToyLoad load);

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;

    /// What went wrong, one sentence each; empty if every answer was right.
    [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
    /// How answers ended that could not be given. They are no complaints.
    [[nodiscard]] const std::vector<Error>& failures() const { return failures_; }
    [[nodiscard]] int answered() const { return answered_; }  // whole and right
    [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
    [[nodiscard]] std::uint64_t replays() const { return replays_; }
    /// Called for each committed token, with its time.
    std::function<void(Micros)> on_token;

private:
    struct Text {
        Request request;
        std::vector<TokenId> answer;
    };
    struct Stream {
        const Text* text = nullptr;
        std::size_t got = 0;
        bool ended = false;
        bool wrong = false;
    };

    void tick();
    void order();
    Go take(Stream& stream, TokenId token);
    void end(Stream& stream, const AnswerStats& stats, const Status& status);

    ConductorActor& conductor_;
    ToyLoad load_;
    StageContext* context_ = nullptr;
    std::vector<Text> texts_;
    std::map<RequestId, std::shared_ptr<Stream>> streams_;
    int ordered_ = 0;
    int answered_ = 0;
    std::uint64_t tokens_ = 0;
    std::uint64_t replays_ = 0;
    std::vector<std::string> complaints_;
    std::vector<Error> failures_;
};

}  // namespace paceline::testing
