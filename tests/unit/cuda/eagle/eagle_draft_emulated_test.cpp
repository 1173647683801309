// DraftModel over an EAGLE draft on a GPU: candidates are those of the same draft on the CPU, with
// features that come in memory of the host or of the device.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "actors/draft/draft_model.hpp"
#include "tests/unit/cuda/eagle/cuda_eagle_fixture.hpp"

namespace paceline::testing {
namespace {

constexpr int kCandidates = 3;
constexpr std::size_t kTextTokens = 20;

/// One text at a model, which is told of features in memory where `on_device` says.
class Drafted {
public:
    Drafted(EagleBackend& backend, const std::vector<TokenId>& tokens, bool on_device)
        : backend_{backend},
          model_{backend,
                 {.head = kEagleHead,
                  .vocab_size = backend.config().vocab_size,
                  .rows_max = 32,
                  .target_features = true}},
          on_device_{on_device} {
        Request request;
        request.text = tokens;
        request.context = 200;
        text_ = std::make_shared<DraftText>(request);
        model_.cache().open(*text_);
    }

    [[nodiscard]] DraftText& text() { return *text_; }
    void tell(Position first, const std::vector<float>& states) {
        const std::size_t width = backend_.width();
        if (!on_device_) {
            REQUIRE(model_.features().receive(*text_, first, states, width));
            return;
        }
        const RowMemory memory =
            backend_.make_rows(states.size() / static_cast<std::size_t>(backend_.config().dim));
        backend_.copy(states, memory.rows);
        REQUIRE(memory.rows.on_device());
        REQUIRE(model_.features().receive(*text_, first, memory.rows, width));
    }
    /// Candidates after the leaves of the tree, in the order of the model's answer.
    [[nodiscard]] std::vector<NodeCandidates> grow() {
        std::vector<NodeCandidates> all;
        while (all.empty()) {
            DraftExpansion expansion{text_, {}, kCandidates};
            for (const DraftNode& node : text_->tree.nodes()) {
                if (!node.expanded && expansion.expand.size() < 6)
                    expansion.expand.push_back(node.id);
            }
            REQUIRE(model_.prepare(std::vector<DraftExpansion>{expansion}));
            all = model_.take(model_.run(nullptr)).candidates;
        }
        return all;
    }

private:
    EagleBackend& backend_;
    DraftModel model_;
    bool on_device_;
    std::shared_ptr<DraftText> text_;
};

void check_near(const std::vector<NodeCandidates>& got, const std::vector<NodeCandidates>& want) {
    REQUIRE(got.size() == want.size());
    for (std::size_t n = 0; n < got.size(); ++n) {
        CHECK(got[n].node == want[n].node);
        REQUIRE(got[n].candidates.size() == want[n].candidates.size());
        for (std::size_t i = 0; i < got[n].candidates.size(); ++i) {
            CHECK(got[n].candidates[i].token == want[n].candidates[i].token);
            CHECK(std::fabs(got[n].candidates[i].log_prob - want[n].candidates[i].log_prob) < 2e-3);
        }
    }
}

TEST_CASE(
    "an EAGLE draft's candidates on a GPU are those on the CPU, wherever features come from") {
    for (const std::vector<int>& layers : {std::vector<int>{}, {1, 2}}) {
        for (const bool on_device : {false, true}) {
            CAPTURE(layers.size());
            CAPTURE(on_device);
            const EagleFixture eagle{"llama-f32", layers};
            const int vocab = eagle.target.config().vocab_size;
            const auto host = eagle.backend({.dtype = Dtype::F32, .kv = KvType::F32});
            const auto device = cuda_eagle(eagle, {.dtype = Dtype::F32, .kv = KvType::F32});
            REQUIRE(device->device_sampler() != nullptr);
            std::mt19937 random{41};
            const std::vector<TokenId> tokens = random_tokens(random, vocab, kTextTokens);
            Drafted want{*host, tokens, false};
            Drafted got{*device, tokens, on_device};
            auto root = static_cast<Position>(kTextTokens) - 1;
            const auto verdict = [&](const std::vector<TokenId>& more, std::size_t features) {
                const std::vector<float> states =
                    normal_numbers(random, features * host->width(), 0.0F, 2.0F);
                for (Drafted* draft : {&want, &got}) {
                    draft->tell(root + static_cast<Position>(more.size() - features), states);
                    draft->text().follow(more);
                }
                root += static_cast<Position>(more.size());
            };
            const std::vector<float> prompt =  // without the first two tokens and the last
                normal_numbers(random, (kTextTokens - 3) * host->width(), 0.0F, 2.0F);
            for (Drafted* draft : {&want, &got}) draft->tell(2, prompt);
            verdict(random_tokens(random, vocab, 1), 1);
            for (int round = 0; round < 6; ++round) {
                CAPTURE(round);
                const auto candidates = want.grow();
                check_near(got.grow(), candidates);
                for (const NodeCandidates& one : candidates) {
                    for (Drafted* draft : {&want, &got})
                        draft->text().tree.expand(one.node, one.candidates);
                }
                // Two of the candidates' tokens are accepted; the feature of the first is lost.
                if (round == 2)
                    verdict({candidates[0].candidates[0].token, random_tokens(random, vocab, 1)[0]},
                            1);
            }
        }
    }
}

}  // namespace
}  // namespace paceline::testing
