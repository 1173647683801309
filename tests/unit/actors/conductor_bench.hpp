// A conductor whose context only records: what it posted, sent, counted and set timers for.
//
// For tests of single transitions (conductor_*_test.cpp): each hands the actor a message and looks
// at what follows. One thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "actors/protocol/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline::conductor_test {

inline constexpr StageId kDraft{1};
inline constexpr StageId kVerifier{2};
inline constexpr StageId kFirst{3};
inline constexpr int kVocab = 100;
inline constexpr std::int32_t kSlots = 128;

class Recorder final : public StageContext {
public:
    struct Posted {
        StageId to;
        control::Begin begin;
        BeginPayload request;
    };
    [[nodiscard]] Micros now() const override { return clock; }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        REQUIRE(kind == static_cast<std::uint16_t>(msg::Kind::Stop));
        if (full.contains(to)) return Push::Full;
        stops.emplace_back(to, decode_message<msg::Stop>(bytes).value().route);
        return Push::Ok;
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        timers.emplace(clock + delay, std::move(wake));
    }
    void submit(const JobLabel&,
                std::function<JobOutcome()>,
                std::function<void(JobOutcome)>) override {
        FAIL("a conductor computes nothing");
    }
    [[nodiscard]] std::uint64_t random() override { return 4; }
    void trace(TraceEvent event) override { ++traced[event.kind]; }
    void count(Counter counter, std::uint64_t add) override { counted[counter] += add; }
    void set(Gauge gauge, std::uint64_t value) override { gauges[gauge] = value; }
    [[nodiscard]] StageId self() const override { return StageId{0}; }
    [[nodiscard]] Epoch epoch() const override { return Epoch{1}; }
    [[nodiscard]] Epoch epoch_of(StageId) const override { return Epoch{1}; }
    void report_fault(StageId peer, Error error) override {
        faults.emplace_back(peer, std::move(error));
    }
    void post(StageId to, const control::Message& message) override {
        const auto& begin = std::get<control::Begin>(message);
        posted.push_back({to, begin, decode_begin(begin.payload).value()});
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId) override { return nullptr; }
    [[nodiscard]] TensorConsumer* tensors_from(StageId) override { return nullptr; }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId) override {
        return nullptr;
    }
    void cancel_before(RequestId request, Attempt valid) override { valid_from[request] = valid; }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId) override { return nullptr; }
    void publish_watermark(RequestId, Attempt, Position, TokenId) override {}
    void excuse_loss(StageId stage) override { excused.push_back(stage); }
    void fail(Error error) override { failure = std::move(error); }
    void stop() override { left = true; }

    void pass(Micros time) {
        clock += time;
        while (!timers.empty() && timers.begin()->first <= clock) {
            timers.extract(timers.begin()).mapped()();
        }
    }

    Micros clock{1000};
    std::vector<Posted> posted;
    std::vector<std::pair<StageId, msg::Route>> stops;
    std::set<StageId> full;  // their channels have no room
    std::multimap<Micros, std::function<void()>> timers;
    std::map<RequestId, Attempt> valid_from;
    std::vector<StageId> excused;
    std::map<Counter, std::uint64_t> counted;
    std::map<Gauge, std::uint64_t> gauges;
    std::map<TraceKind, int> traced;
    std::optional<Error> failure;
    std::vector<std::pair<StageId, Error>> faults;  // of stages
    bool left = false;
};

inline ConductorPlan plan() {
    ConductorPlan made;
    made.verifier = kVerifier;
    made.begin_to = {{.id = kDraft, .essential = false, .name = "draft", .proposes_alone = true},
                     {.id = kVerifier, .name = "segment-2"},
                     {.id = kFirst, .name = "segment-1"}};
    made.recovery_limit = Micros{5'000'000};
    made.draft_quarantine = {.clear_after = Micros{4'000'000},
                             .clear_silent_after = Micros{20'000'000}};
    return made;
}

inline Request request(std::size_t length = 4, Position context = 64) {
    Request made;
    for (std::size_t i = 0; i < length; ++i) made.text.push_back(static_cast<TokenId>(i));
    made.max_tokens = 30;
    made.context = context;
    return made;
}

struct Bench {
    explicit Bench(ConductorPlan with = plan()) : conductor{std::move(with), kVocab, kSlots} {
        conductor.on_start(context);
    }
    struct Ear {
        std::vector<TokenId> tokens;
        int ends = 0;
        AnswerStats stats;
        Status status;
    };
    AnswerOrder order(const Request& spec) {
        ears.push_back(std::make_unique<Ear>());
        Ear* ear = ears.back().get();
        AnswerOrder made;
        made.request = spec;
        made.on_token = [ear](TokenId token) {
            ear->tokens.push_back(token);
            return Go::On;
        };
        made.on_end = [ear](const AnswerStats& stats, const Status& status) {
            ++ear->ends;
            ear->stats = stats;
            ear->status = status;
        };
        return made;
    }
    RequestId submit(const Request& spec) { return conductor.submit(order(spec)).value(); }
    void verdict(RequestId id,
                 std::uint32_t attempt,
                 Position base,
                 const std::vector<TokenId>& tokens,
                 FinishReason finish = FinishReason::None,
                 bool candidates = true) {
        msg::Verdict made{};
        made.route = {id, Attempt{attempt}, Epoch{1}};
        made.base = base;
        made.count = static_cast<std::uint32_t>(tokens.size());
        made.batch_rows = candidates ? made.count + 1 : 1;
        made.depth = candidates ? made.count : 0;
        made.finish = finish;
        std::copy(tokens.begin(), tokens.end(), made.tokens.begin());
        conductor.handle(kVerifier, static_cast<std::uint16_t>(msg::Kind::Verdict),
                         std::as_bytes(std::span{&made, 1}));
    }
    void lose(StageId stage) { conductor.on_peer(stage, PeerChange::Lost); }
    void join(StageId stage) { conductor.on_peer(stage, PeerChange::Joined); }

    Recorder context;
    ConductorActor conductor;
    std::vector<std::unique_ptr<Ear>> ears;
};

inline std::vector<TokenId> copy(std::span<const TokenId> tokens) {
    return {tokens.begin(), tokens.end()};
}

}  // namespace paceline::conductor_test
