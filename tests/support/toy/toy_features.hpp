// FakeFeatures: the features of a toy EAGLE draft: what it was given for each slot.
//
// Without `counts` its backend computes as without them; the tests read what came. With them the
// backend compares the feature before each row with its own output there: one that differs changes
// what the row proposes, as a wrong feature does in a trained draft, and is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "model/feature_slots.hpp"

namespace paceline::testing {

/// What became of features on their way to a draft, and in it.
struct FeatureCounts {
    std::uint64_t lost = 0;  // notes
    std::uint64_t doubled = 0;
    std::uint64_t late = 0;
    std::uint64_t read = 0;   // by a row, of the slot before it
    std::uint64_t wrong = 0;  // of those: another state than the draft's own there
};

class FakeFeatures final : public FeatureSlots {
public:
    explicit FakeFeatures(std::size_t width) : width_{width}, none_(width) {}
    [[nodiscard]] std::size_t width() const override { return width_; }
    void give(KvSlot slot, std::span<const float> states) override {
        given_[slot].assign(states.begin(), states.end());
        all.push_back(given_[slot]);
    }
    void forget(KvSlot slot) override { given_.erase(slot); }
    [[nodiscard]] bool given(KvSlot slot) const override { return given_.contains(slot); }
    [[nodiscard]] std::span<const float> feature(KvSlot slot) override {
        return given(slot) ? given_.at(slot) : none_;
    }

    std::vector<std::vector<float>> all;    // that were ever given
    std::shared_ptr<FeatureCounts> counts;  // for features after the last layer

private:
    std::size_t width_;
    std::vector<float> none_;
    std::map<KvSlot, std::vector<float>> given_;
};

}  // namespace paceline::testing
