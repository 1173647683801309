// FakeFeatures: the features of a toy EAGLE draft: what it was given for each slot. Its backend
// computes as without them, so they may be lost or late; the tests read what came.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "model/feature_slots.hpp"

namespace paceline::testing {

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

    std::vector<std::vector<float>> all;  // that were ever given

private:
    std::size_t width_;
    std::vector<float> none_;
    std::map<KvSlot, std::vector<float>> given_;
};

}  // namespace paceline::testing
