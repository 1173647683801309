// The rejection rule in a running pipeline: the committed tokens equal those of the verifier when
// the recorded schedule is replayed with plain logits, and their distribution is the target's.
#include <array>
#include <cmath>
#include <random>

#include "model/sampling/candidates.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr auto kBatch = static_cast<std::uint16_t>(msg::Kind::Batch);

/// Logits after a text, one row after the other, without batches, trees or slots that move.
class PlainForward {
public:
    std::span<float> logits_behind(std::span<const TokenId> text) {
        const auto same = std::mismatch(text_.begin(), text_.end(), text.begin(), text.end());
        // At least the last row runs again: its hidden state is what the head needs.
        const auto kept =
            std::min(static_cast<std::size_t>(same.first - text_.begin()), text.size() - 1);
        text_.assign(text.begin(), text.end());
        while (slots_.size() < text.size()) slots_.push_back(static_cast<KvSlot>(slots_.size()));
        for (std::size_t i = kept; i < text.size(); ++i) {
            Row row;
            row.token = text[i];
            row.position = static_cast<Position>(i);
            row.slot = slots_[i];
            row.first = 0;
            row.last = 2 * kFakeLayers;
            row.prefix_slots = slots_.data();
            row.prefix_count = row.position + 1;
            (void)backend_.run_layers(std::span{&row, 1}, hidden_, nullptr);
        }
        backend_.head(HeadId::Final, hidden_, 1, logits_);
        return logits_;
    }

private:
    FakeBackend backend_{0, kFakeLayers, 1024};
    std::vector<TokenId> text_;
    std::vector<KvSlot> slots_;
    std::array<float, kFakeDim> hidden_{};
    std::array<float, kFakeVocab> logits_{};
};

/// Rows in the order in which they reached the verifier, and its verdicts.
struct Schedule {
    void record(const msg::Batch& batch) {
        std::uint32_t at = 0;
        for (const msg::BatchPart& part : batch.parts) {
            for (std::uint32_t i = 0; i < part.rows; ++i, ++at) {
                if (part.kind == msg::BatchKind::Verify)
                    rows.push_back({part.batch, batch.rows[at]});
            }
        }
    }
    struct Arrived {
        BatchId batch;
        msg::BatchRow row;
    };
    std::vector<Arrived> rows;
    std::vector<msg::Verdict> verdicts;
};

/// Lays the schedule before the verifier again.
class Replay {
public:
    Replay(const BeginPayload& request, const Schedule& schedule)
        : request_{request}, rule_{request.finish_rule()}, schedule_{schedule} {}

    /// The text that follows from it; every verdict must be what the recorded one was.
    std::vector<TokenId> run() {
        std::vector<TokenId> text = request_.text;
        std::uint32_t above = msg::kNoParent;
        for (const msg::Verdict& verdict : schedule_.verdicts) {
            const std::vector<msg::BatchRow> rows = verified_by(verdict, text, above);
            REQUIRE_FALSE(rows.empty());
            CHECK(rows.size() == verdict.batch_rows);
            const WalkResult result = verify(rows, text);
            above = result.nodes.empty() ? rows.front().node.value : result.nodes.back().value;
            proposed += result.nodes.size();
            text.insert(text.end(), result.tokens.begin(), result.tokens.end());
            CHECK(result.finish == verdict.finish);
        }
        return {text.begin() + static_cast<std::ptrdiff_t>(request_.text.size()), text.end()};
    }

    std::size_t proposed = 0;  // accepted candidates

private:
    /// What lives of all that had reached the verifier: the root, and what hangs below it.
    [[nodiscard]] std::vector<msg::BatchRow> verified_by(const msg::Verdict& verdict,
                                                         const std::vector<TokenId>& text,
                                                         std::uint32_t above) const {
        std::vector<msg::BatchRow> rows;
        for (const Schedule::Arrived& arrived : schedule_.rows) {
            const msg::BatchRow& row = arrived.row;
            if (verdict.batch < arrived.batch) continue;
            const bool is_root = row.position + 1 == static_cast<Position>(text.size()) &&
                                 row.token == text.back() &&
                                 (row.parent == msg::kNoParent || row.parent == above);
            const bool below = std::any_of(rows.begin(), rows.end(), [&](const auto& other) {
                return other.node.value == row.parent;
            });
            if (is_root || below) rows.push_back(row);
        }
        return rows;
    }
    WalkResult verify(const std::vector<msg::BatchRow>& rows, const std::vector<TokenId>& text) {
        BatchWalk walk{{.rows = rows,
                        .committed = text,
                        .sampling = request_.sampling,
                        .finish = rule_,
                        .rule = request_.acceptance}};
        while (const auto at = walk.wanted()) {
            std::vector<TokenId> seen;
            for (std::size_t row = *at; row != 0;) {
                seen.insert(seen.begin(), rows[row].token);
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    if (rows[i].node.value != rows[row].parent) continue;
                    row = i;
                    break;
                }
            }
            seen.insert(seen.begin(), text.begin(), text.end());
            walk.feed(forward_.logits_behind(seen), scratch_);
        }
        return walk.take();
    }

    const BeginPayload& request_;
    FinishRule rule_;
    const Schedule& schedule_;
    PlainForward forward_;
    SamplerScratch scratch_;
};

/// The probabilities of all answers of a request, from plain logits.
void enumerate(const BeginPayload& request,
               std::vector<TokenId>& answer,
               double probability,
               PlainForward& forward,
               std::map<std::vector<TokenId>, double>& distribution) {
    if (answer.size() == static_cast<std::size_t>(request.max_tokens)) {
        distribution[answer] += probability;
        return;
    }
    std::vector<TokenId> text = request.text;
    text.insert(text.end(), answer.begin(), answer.end());
    SamplerScratch scratch;
    std::vector<float> p(kFakeVocab);
    REQUIRE(probabilities(forward.logits_behind(text), {.committed = text, .path = {}},
                          request.sampling, p, scratch));
    for (TokenId token = 0; token < kFakeVocab; ++token) {
        const double chance = p[static_cast<std::size_t>(token)];
        if (chance <= 0.0) continue;
        answer.push_back(token);
        enumerate(request, answer, probability * chance, forward, distribution);
        answer.pop_back();
    }
}

}  // namespace

TEST_CASE("a recorded schedule laid before the verifier again gives the same text by rejection") {
    std::size_t proposed = 0;
    std::size_t differs = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        BeginPayload request{small_request(seed)};
        make_sampled(request, seed);
        request.sampling.temperature = 0.35F;
        request.acceptance = AcceptanceRule::Rejection;
        const Oracle oracle = plain_answer(request);
        PipelineOptions options{.segments = 2 + static_cast<int>(seed % 3),
                                .drafting = seed % 4 == 0 ? Drafting::Oracle : Drafting::Babble,
                                .seed = seed};
        options.dispatch.start = static_cast<StartRule>(random() % 3);
        options.dispatch.shape = static_cast<BatchShape>(random() % 2);
        options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(random() % 4);
        add_exit(options, static_cast<Exit>(seed % kExits), random);
        Pipeline pipeline{options, request, oracle};
        Schedule schedule;
        pipeline.world.tap = [&](StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
            if (to == segment_id(options.segments) && kind == kBatch) {
                schedule.record(decode_message<msg::Batch>(bytes).value());
            }
            if (to == kTheConductor) {
                schedule.verdicts.push_back(decode_message<msg::Verdict>(bytes).value());
            }
        };
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto answer = pipeline.conductor.log.answer(kOne);
        Replay replay{request, schedule};
        CHECK(replay.run() == std::vector<TokenId>(answer.begin(), answer.end()));
        proposed += replay.proposed;
        differs += oracle.answer != std::vector<TokenId>(answer.begin(), answer.end()) ? 1 : 0;
    }
    CHECK(proposed > 100);
    CHECK(differs > 30);  // it is not the coupled rule that was at work
}

TEST_CASE("rejection in a pipeline leaves the distribution of the target's text as it is") {
    constexpr int kRuns = 4000;
    BeginPayload request{small_request(1)};
    request.text = {5, 17, 3};
    request.max_tokens = 3;
    request.context = 64;
    request.acceptance = AcceptanceRule::Rejection;
    request.sampling = {.temperature = 0.9F, .top_k = 3};
    PlainForward forward;
    std::map<std::vector<TokenId>, double> distribution;
    std::vector<TokenId> answer;
    enumerate(request, answer, 1.0, forward, distribution);
    // What the drafts believe in: likely, but not the only way.
    const auto likely =
        std::max_element(distribution.begin(), distribution.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [drafting, random_prices] : {std::pair{Drafting::Oracle, false},
                                                  {Drafting::Babble, false},
                                                  {Drafting::Oracle, true}}) {
        CAPTURE(static_cast<int>(drafting));
        CAPTURE(random_prices);
        std::map<std::vector<TokenId>, int> seen;
        int verdicts = 0;
        for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
            request.sampling.seed = seed;
            PipelineOptions options{.segments = 2, .drafting = drafting, .seed = seed};
            options.dispatch.shape = BatchShape::Tree;
            options.dispatch.batches_in_flight_max = 2;
            if (random_prices) {
                options.dispatch.controller = Controller::On;
                options.dispatch.random_decisions = seed;
            }
            // Its candidates come from the seed's own noise, as those of a coupled draft do.
            options.exit_at = 1;
            options.exit = {.proposes = true, .gate = 0.0F};
            Pipeline pipeline{options, request, {.answer = likely->first}};
            pipeline.open_and_begin(kOne, request);
            pipeline.run_until_finished();
            const auto said = pipeline.conductor.log.answer(kOne);
            ++seen[std::vector<TokenId>(said.begin(), said.end())];
            verdicts += pipeline.conductor.verdicts;
        }
        double chi_square = 0.0;
        for (const auto& [text, probability] : distribution) {
            const double expected = probability * kRuns;
            const double off = (seen.contains(text) ? seen[text] : 0) - expected;
            chi_square += off * off / expected;
        }
        for (const auto& [text, count] : seen) CHECK(distribution.contains(text));
        const auto freedom = static_cast<double>(distribution.size() - 1);
        MESSAGE("chi-square ", chi_square, " of ", freedom, " degrees, verdicts ", verdicts);
        CHECK(chi_square < freedom + 4.0 * std::sqrt(2.0 * freedom));
        // Candidates were accepted.
        CHECK((random_prices || verdicts < 3 * kRuns * 9 / 10));
    }
}
