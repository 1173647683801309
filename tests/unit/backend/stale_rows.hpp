// Rows that go stale while they run, and a batch whose rows can do so.
//
// A StaleAfter is asked by one thread, as RowWatch demands.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "tests/unit/backend/fixture.hpp"

namespace paceline::testing {

/// Rows that go stale after a number of questions about row 0, which never does on its own.
class StaleAfter final : public CancelToken::RowWatch {
public:
    static constexpr int kNever = 1 << 20;

    explicit StaleAfter(std::vector<int> after) : after_{std::move(after)} {}
    [[nodiscard]] bool stale(std::size_t row) const override {
        if (row == 0) ++asked_;
        return after_[row] <= asked_;
    }
    [[nodiscard]] int asked() const { return asked_; }

private:
    std::vector<int> after_;
    mutable int asked_ = 0;
};

inline constexpr int kStalePrefix = 40;

/// Continuations of one prefix side by side, so that no row reads what another one writes.
struct StaleBatch {
    std::vector<KvSlot> slots = home_slots(kStalePrefix);
    std::vector<KvSlot> own;
    std::vector<Row> rows;

    StaleBatch(const ModelConfig& config, std::mt19937& rng, int count) {
        for (int i = 0; i < count; ++i) own.push_back(kStalePrefix + 1 + 2 * i);
        for (int i = 0; i < count; ++i) {
            Row row;
            row.token = static_cast<TokenId>(rng() % static_cast<unsigned>(config.vocab_size));
            row.position = kStalePrefix;
            row.slot = own[static_cast<std::size_t>(i)];
            row.prefix_slots = slots.data();
            row.prefix_count = kStalePrefix;
            row.path_slots = &own[static_cast<std::size_t>(i)];
            row.path_count = 1;
            row.last = config.sublayers() - static_cast<int>(rng() % 2);
            rows.push_back(row);
        }
    }
};

inline void feed_stale_prefix(Backend& backend, std::mt19937& rng) {
    (void)sequence_logits(backend, random_tokens(rng, backend.config().vocab_size, kStalePrefix),
                          64);
}

}  // namespace paceline::testing
