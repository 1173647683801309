// PromptLookupSource: prompt lookup as a draft source. Needs no model and no device.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/guesses/prompt_lookup.hpp"
#include "actors/draft/draft_source.hpp"

namespace paceline {

class PromptLookupSource final : public DraftSource {
public:
    explicit PromptLookupSource(PromptLookup lookup) : lookup_{std::move(lookup)} {}

    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override { lookup_.append(tokens); }
    [[nodiscard]] std::vector<Candidate> weigh(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        return lookup_.propose(gamma, path);
    }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

private:
    PromptLookup lookup_;
};

}  // namespace paceline
