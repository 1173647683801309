// OwnTokens through a pipeline: what a source gets for its observed nodes is what plain decoding
// says after them.
#include <map>
#include <random>

#include "actors/draft/draft_source.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

struct Received {
    std::size_t tokens = 0;
    std::size_t of_accepted = 0;  // the target went on below that node
    std::size_t wrong = 0;
};

/// Random trees, some nodes of which are right and some observed.
class WatchingSource final : public DraftSource {
public:
    WatchingSource(Request request,
                   std::vector<TokenId> known,
                   std::uint64_t seed,
                   Received& received)
        : request_{std::move(request)},
          known_{std::move(known)},
          random_{seed},
          received_{received} {}

    bool greedy = false;  // what is expected are the most probable tokens

    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override {
        text_.insert(text_.end(), tokens.begin(), tokens.end());
        named_.clear();
    }
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t /*depth*/,
                                               const CancelToken& /*cancel*/) override {
        if (!path.empty()) return {};
        // Other names in each round: those of an earlier one are wrong ones now.
        begin_ = (begin_ + kNamesARound) % kNames;
        named_.clear();
        std::vector<SourceNode> nodes;
        std::vector<std::vector<TokenId>> paths;
        for (std::uint64_t i = random_() % 20; i > 0; --i) {
            const auto parent = static_cast<std::int32_t>(random_() % (nodes.size() + 1)) - 1;
            std::vector<TokenId> to =
                parent < 0 ? std::vector<TokenId>{} : paths[static_cast<std::size_t>(parent)];
            const std::size_t at = text_.size() + to.size();
            const bool right = random_() % 2 == 0 && at < known_.size();
            to.push_back(right ? known_[at] : static_cast<TokenId>(random_() % kFakeVocab));
            SourceNode node{.token = to.back(), .parent = parent, .log_prob = -0.1F};
            if (random_() % 2 == 0 && !named(to)) {
                node.observe = static_cast<std::uint8_t>(1 + (begin_ + named_.size()) % kNames);
                named_[node.observe] = to;
            }
            nodes.push_back(node);
            paths.push_back(to);
        }
        return nodes;
    }
    void observe(std::span<const msg::OwnToken> own) override {
        for (const msg::OwnToken& each : own) {
            const auto found = named_.find(each.node);
            if (found == named_.end()) continue;
            ++received_.tokens;
            Request from = request_;
            from.text = text_;
            from.text.insert(from.text.end(), found->second.begin(), found->second.end());
            from.max_tokens = 1;
            from.end_tokens.clear();
            if (greedy) from.sampling.temperature = 0.0F;
            const std::vector<TokenId> plain = plain_answer(from).answer;
            received_.wrong += plain != std::vector{each.token} ? 1 : 0;
            const bool accepted = from.text.size() <= known_.size() &&
                                  std::equal(from.text.begin(), from.text.end(), known_.begin());
            received_.of_accepted += accepted ? 1 : 0;
        }
    }

private:
    [[nodiscard]] bool named(const std::vector<TokenId>& path) const {
        return std::any_of(named_.begin(), named_.end(),
                           [&](const auto& one) { return one.second == path; });
    }

    static constexpr std::size_t kNames = 240;
    static constexpr std::size_t kNamesARound = 20;

    Request request_;
    std::vector<TokenId> known_;  // prompt and answer
    std::vector<TokenId> text_;
    std::mt19937_64 random_;
    std::size_t begin_ = 0;  // name of the first observed node, from 0
    std::map<std::uint32_t, std::vector<TokenId>> named_;
    Received& received_;
};

}  // namespace

TEST_CASE(
    "a source receives what plain decoding draws after observed nodes, accepted or rejected") {
    Received received;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        PipelineOptions options{.segments = 1 + static_cast<int>(seed % 3),
                                .drafting = Drafting::Guesses,
                                .seed = seed};
        options.dispatch.shape = BatchShape::Tree;
        options.dispatch.rows_max = 8 + static_cast<std::uint32_t>(seed % 20);
        options.verify.head_rows = 1 + static_cast<std::uint32_t>(seed % 5);
        options.draws_itself = seed % 2 == 0;
        options.on_devices = static_cast<unsigned>(seed);
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 1 + seed % 3; ++i) {
            requests.push_back(small_request(seed * 10 + i));
            if ((seed + i) % 3 == 1) make_sampled(requests.back(), seed + i);
            if ((seed + i) % 3 == 2) {  // what a device draws itself
                requests.back().sampling.temperature = 0.9F;
                requests.back().sampling.seed = seed;
            }
        }
        options.sources = [&received, seed](const Request& request) {
            return std::make_unique<WatchingSource>(
                request, whole_text(request, plain_answer(request)), seed, received);
        };
        check_exact(options, requests);
    }
    CHECK(received.wrong == 0);
    CHECK(received.tokens > 1000);
    CHECK(received.of_accepted > 100);
    CHECK(received.of_accepted < received.tokens / 2);
}

TEST_CASE(
    "under the rejection rule a source receives the most probable token of each observed row") {
    Received received;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        BeginPayload request{small_request(seed)};
        request.sampling.temperature = 0.9F;
        request.sampling.seed = seed;
        request.acceptance = AcceptanceRule::Rejection;
        const Oracle oracle = plain_answer(request);
        PipelineOptions options{.drafting = Drafting::Guesses, .seed = seed};
        options.dispatch.shape = BatchShape::Tree;
        options.dispatch.rows_max = 20;
        options.sources = [&](const Request& of) {
            auto source =
                std::make_unique<WatchingSource>(of, whole_text(request, oracle), seed, received);
            source->greedy = true;
            return source;
        };
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
    }
    CHECK(received.wrong == 0);
    CHECK(received.tokens > 300);
}
