// FakeBackend: a toy model whose every token depends on every key that its row should see.
//
// A hidden state is a 64-bit hash, carried as four exact floats, plus the row's token. A layer
// writes the hash to the row's KV slot and mixes in what it reads at all visible slots, in order
// of position; the slots start out as garbage. So a wrong slot, a missing row, a stale value or a
// wrong order anywhere changes the text that follows. The head prefers one successor of each
// token, so that the text has loops for prompt lookup to find, and lets the hash decide else.
// Its adapter passes hidden states on as they are, and counts the visible keys that it was not
// given since the layers last wrote them: after the segment's last layer, or after the layer that
// a test names (adapter_after).
// Where a test asks for it (draws_itself), it draws tokens as a device does: then no caller may
// read hidden states that were not asked for.
// Where a test asks for it (on_device), its own memory is that of a device: addresses that fault
// where the host follows them. What crosses between host and device is counted.
// Weights and cache are a few hundred kilobytes; time is what a test asks for (layer_cost).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ipc/base/check.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "tests/support/run_then_draw.hpp"
#include "tests/support/toy/fake_device.hpp"
#include "tests/support/toy/toy_features.hpp"

namespace paceline::testing {

inline constexpr int kFakeLayers = 8;
inline constexpr int kFakeDim = 5;
inline constexpr int kFakeVocab = 48;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    return x ^ (x >> 27U);
}

class FakeBackend final : public Backend, public DeviceSampler {
public:
    FakeBackend(int first_layer, int last_layer, std::int32_t kv_slots)
        : first_layer_{first_layer}, last_layer_{last_layer}, kv_slots_{kv_slots} {
        config_.layers = kFakeLayers;
        config_.dim = kFakeDim;
        config_.vocab_size = kFakeVocab;
        config_.context_length = 1 << 20;
        keys_.resize(static_cast<std::size_t>(kFakeLayers) * static_cast<std::size_t>(kv_slots));
        for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = mix(0xbad, i);
        newest_.resize(static_cast<std::size_t>(kv_slots));
        adapted_.resize(static_cast<std::size_t>(kv_slots));
    }

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] int first_layer() const override { return first_layer_; }
    [[nodiscard]] int last_layer() const override { return last_layer_; }
    [[nodiscard]] std::int32_t kv_slots() const override { return kv_slots_; }

    [[nodiscard]] FeatureSlots* feature_slots() override { return features.get(); }

    [[nodiscard]] MemoryPlace memory_place() const override {
        return on_device ? MemoryPlace::Device : MemoryPlace::Host;
    }
    [[nodiscard]] RowMemory make_rows(std::size_t rows) override {
        RowMemory memory = Backend::make_rows(rows);
        if (on_device) memory.rows = fake_device_address(memory.rows.host());
        return memory;
    }
    void gather(std::span<const RowSource> rows, HiddenRows to) override {
        PACE_CHECK(to.size() == rows.size() * kFakeDim, "a place for each row");
        const std::span<float> out = reach(to);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i].is_gap()) continue;
            const auto row = reach(rows[i].of).subspan(rows[i].row * kFakeDim, kFakeDim);
            std::copy(row.begin(), row.end(),
                      out.begin() + static_cast<std::ptrdiff_t>(i * kFakeDim));
            if (to.on_device() != rows[i].of.on_device()) ++rows_crossed;
        }
    }
    void copy(ConstHiddenRows from, HiddenRows to) override {
        PACE_CHECK(to.size() == from.size(), "as many rows as are copied");
        const std::span<const float> rows = reach(from);
        std::copy(rows.begin(), rows.end(), reach(to).begin());
        if (to.on_device() != from.on_device()) rows_crossed += rows.size() / kFakeDim;
    }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows states,
                          const CancelToken* cancel) override {
        const std::span<float> hidden = reach(states);
        if (on_device &&
            !states.on_device()) {  // in, but for those that are embedded here, and out
            const auto given = [](const Row& row) { return row.first != 0; };
            rows_crossed += rows.size();
            rows_crossed +=
                static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), given));
        }
        PACE_CHECK(hidden.size() == rows.size() * kFakeDim, "hidden states of the wrong size");
        rows_run += rows.size();
        if (on_run) on_run();
        if (on_rows) on_rows(rows);
        const CancelToken::RowWatch* watch = cancel == nullptr ? nullptr : cancel->rows();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            highest_position = std::max(highest_position, rows[i].position);
            PACE_CHECK(rows[i].prefix_count + rows[i].path_count == rows[i].position + 1,
                       "a row does not see all positions before it");
            PACE_CHECK(rows[i].key_slot(rows[i].position) == rows[i].slot, "a row misses itself");
            if (rows[i].first != 0) continue;
            store(hidden, i,
                  mix(static_cast<std::uint64_t>(rows[i].token),
                      static_cast<std::uint64_t>(rows[i].position)));
            hidden[i * kFakeDim + 4] = static_cast<float>(rows[i].token);
        }
        for (int layer = first_layer_; layer < last_layer_; ++layer) {
            if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
            // Asleep, not busy: many toy stages share the cores of the machine that tests them.
            if (layer_cost.count() > 0) std::this_thread::sleep_for(layer_cost);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (watch == nullptr || !watch->stale(i)) continue;
                store(hidden, i, mix(0xdead, i));
                ++rows_stale;
                // The adapter is given it all the same, and its key is not read.
                if (rows[i].first < rows[i].last && rows[i].last == 2 * adapter_after)
                    remember(rows[i], hidden, i);
            }
            attention(rows, hidden, layer);
            keep_stacks(rows, hidden, 2 * layer);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (!runs(rows[i], 2 * layer + 1)) continue;
                store(hidden, i, mix(load(hidden, i), 0x3192));
                if (layer + 1 == adapter_after) remember(rows[i], hidden, i);
            }
            keep_stacks(rows, hidden, 2 * layer + 1);
        }
        for (std::size_t i = 0; adapter_after == 0 && i < rows.size(); ++i)
            remember(rows[i], hidden, i);
        if (features && features->counts) read_features(rows, hidden);
        return RunOutcome::Done;
    }

    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows states,
                           HiddenRows to,
                           const CancelToken* /*cancel*/) override {
        const std::span<const float> hidden = reach(states);
        const std::span<float> out = reach(to);
        count_crossing(states);
        count_crossing(to);
        ++adapter_calls;
        adapter_rows += rows.size();
        for (std::size_t i = 0; i < rows.size(); ++i)
            adapted_[static_cast<std::size_t>(rows[i].slot)] = load(hidden, i);
        for (const Row& row : rows) {
            for (Position p = 0; p <= row.position; ++p) {
                const auto slot = static_cast<std::size_t>(row.key_slot(p));
                if (adapted_[slot] != newest_[slot]) ++adapter_gaps;
            }
        }
        std::copy(hidden.begin(), hidden.end(), out.begin());
        return RunOutcome::Done;
    }

    [[nodiscard]] bool has_head(HeadId /*id*/) const override { return true; }

    void head(HeadId id, ConstHiddenRows states, int rows, std::span<float> logits) override {
        const std::span<const float> hidden = reach(states);
        count_crossing(states);
        head_rows += static_cast<std::size_t>(rows);
        ++head_calls;
        if (id != HeadId::Final || last_layer_ != kFakeLayers) {
            return find_candidates(id == HeadId::Adapter ? 0 : static_cast<int>(id), hidden, rows,
                                   logits);
        }
        for (int r = 0; r < rows; ++r) {
            const auto row = static_cast<std::size_t>(r);
            const std::uint64_t state = load(hidden, row);
            const auto token = static_cast<int>(hidden[row * kFakeDim + 4]);
            for (int t = 0; t < kFakeVocab; ++t) {
                const std::uint64_t noise = mix(state, static_cast<std::uint64_t>(t)) >> 40U;
                const float preferred = t == (token * 5 + 3) % 16 ? 2.6F : 0.0F;
                logits[row * kFakeVocab + static_cast<std::size_t>(t)] =
                    3.0F * static_cast<float>(noise) / 16777216.0F + preferred;
            }
            if (all_nan_at >= 0 && token == all_nan_at) {
                const std::span<float> own = logits.subspan(row * kFakeVocab, kFakeVocab);
                std::fill(own.begin(), own.end(), std::numeric_limits<float>::quiet_NaN());
            }
        }
    }

    [[nodiscard]] DeviceSampler* device_sampler() override { return draws_itself ? this : nullptr; }
    [[nodiscard]] bool draws(const SamplingParams& params) const override {
        return draws_itself && !params.has_penalties() && params.logit_bias.empty();
    }
    [[nodiscard]] int candidates_max() const override { return 16; }

    void draw(ConstHiddenRows hidden,
              std::span<const DrawJob> jobs,
              std::span<std::optional<TokenId>> tokens) override {
        std::vector<float> logits(jobs.size() * kFakeVocab);
        head(HeadId::Final, hidden, static_cast<int>(jobs.size()), logits);
        SamplerScratch scratch;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            PACE_CHECK(draws(*jobs[i].params), "drawn with what the host has");
            tokens[i] = sample(std::span{logits}.subspan(i * kFakeVocab, kFakeVocab),
                               jobs[i].position, {}, *jobs[i].params, scratch);
        }
    }
    void draw_candidates(HeadId id,
                         ConstHiddenRows hidden,
                         std::span<const DrawJob> jobs,
                         std::span<std::vector<Candidate>> best) override {
        std::vector<float> logits(jobs.size() * kFakeVocab);
        head(id, hidden, static_cast<int>(jobs.size()), logits);
        SamplerScratch scratch;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            PACE_CHECK(draws(*jobs[i].params), "drawn with what the host has");
            best[i] = candidates(std::span{logits}.subspan(i * kFakeVocab, kFakeVocab),
                                 jobs[i].position, {}, *jobs[i].params, jobs[i].count, scratch);
        }
    }
    RunOutcome run_and_draw(std::span<const Row> rows,
                            HiddenRows hidden,
                            const BehindRows& behind,
                            std::span<std::optional<TokenId>> tokens,
                            const CancelToken* cancel) override {
        ++runs_with_draws;
        const RunOutcome outcome =
            run_then_draw({*this, *this}, rows, hidden, behind, tokens, cancel);
        const std::span<float> left = reach(hidden);
        if (!behind.hidden) std::fill(left.begin(), left.end(), 12345.0F);
        return outcome;
    }
    RunOutcome run_and_draw_candidates(HeadId id,
                                       std::span<const Row> rows,
                                       HiddenRows hidden,
                                       const BehindRows& behind,
                                       std::span<std::vector<Candidate>> best,
                                       const CancelToken* cancel) override {
        ++runs_with_draws;
        return run_then_draw_candidates({*this, *this}, id, rows, hidden, behind, best, cancel);
    }

    [[nodiscard]] std::size_t kv_bytes() const override {
        return static_cast<std::size_t>(last_layer_ - first_layer_) * sizeof(std::uint64_t);
    }
    void read_kv(KvSlot slot, KvBytes to) const override {
        const std::span<std::byte> bytes = reach(to);
        PACE_CHECK(bytes.size() == kv_bytes(), "keys of another size are read");
        for (int layer = first_layer_; layer < last_layer_; ++layer) {
            const auto at = static_cast<std::size_t>(layer - first_layer_) * sizeof(std::uint64_t);
            std::memcpy(bytes.subspan(at).data(), &keys_[place(layer, slot)],
                        sizeof(std::uint64_t));
        }
    }
    void write_kv(KvSlot slot, ConstKvBytes from) override {
        const std::span<const std::byte> bytes = reach(from);
        PACE_CHECK(bytes.size() == kv_bytes(), "keys of another size are written");
        for (int layer = first_layer_; layer < last_layer_; ++layer) {
            const auto at = static_cast<std::size_t>(layer - first_layer_) * sizeof(std::uint64_t);
            std::memcpy(&keys_[place(layer, slot)], bytes.subspan(at).data(),
                        sizeof(std::uint64_t));
        }
    }

    [[nodiscard]] MemoryUse memory_use() const override { return {}; }
    [[nodiscard]] std::string equality_class() const override { return "fake"; }

    std::size_t rows_run = 0;
    std::size_t rows_stale = 0;  // times that a layer found a row stale
    std::size_t head_rows = 0;
    std::size_t head_calls = 0;
    std::size_t adapter_calls = 0;
    std::size_t adapter_rows = 0;
    std::size_t adapter_gaps = 0;  // keys that its rows saw and that were not given to it
    int adapter_after = 0;         // layers, before anything runs; 0: all of the segment
    bool draws_itself = false;     // tokens and candidates, as a device does
    std::shared_ptr<FakeFeatures> features = {};  // of a toy EAGLE draft
    bool on_device = false;                       // before anyone asks for rows
    std::size_t rows_crossed = 0;                 // between host and device
    std::size_t runs_with_draws = 0;
    double candidate_right = 0.8;  // of heads other than the last layer's own
    Position highest_position = -1;
    TokenId all_nan_at = -1;                  // rows of this token yield no logits at all
    std::chrono::microseconds layer_cost{0};  // of one layer, whatever the rows
    std::function<void()> on_run;             // called first by every run_layers(); may throw
    std::function<void(std::span<const Row>)> on_rows;  // then this one

private:
    /// What a device sees at a reference.
    template <class T>
    [[nodiscard]] std::span<T> reach(PlacedSpan<T> memory) const {
        if (!memory.on_device()) return memory.host();
        PACE_CHECK(on_device, "a host follows an address of a device");
        return fake_host_address(memory);
    }
    /// What the adapter is to be given of a row.
    void remember(const Row& row, std::span<const float> hidden, std::size_t index) {
        newest_[static_cast<std::size_t>(row.slot)] = load(hidden, index);
    }
    /// A feature that is not what the draft itself makes of the token before a row leads its
    /// candidates astray.
    void read_features(std::span<const Row> rows, std::span<float> hidden) {
        FeatureCounts& counts = *features->counts;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i].position == 0) continue;
            const KvSlot before = rows[i].key_slot(rows[i].position - 1);
            if (!features->given(before)) continue;
            ++counts.read;
            const std::uint64_t feature = load(features->feature(before), 0);
            if (feature == newest_[static_cast<std::size_t>(before)]) continue;
            ++counts.wrong;
            store(hidden, i, mix(load(hidden, i), feature));
        }
    }
    static bool runs(const Row& row, int sublayer) {
        return sublayer >= row.first && sublayer < row.last &&
               (row.mask == nullptr || !row.mask->skips(sublayer));
    }
    /// Writes the keys of the rows that run it, then mixes what each sees into its state.
    void attention(std::span<const Row> rows, std::span<float> hidden, int layer) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (!runs(rows[i], 2 * layer)) continue;
            key(layer, rows[i].slot) = mix(load(hidden, i), static_cast<std::uint64_t>(layer));
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (!runs(rows[i], 2 * layer)) continue;
            std::uint64_t state = load(hidden, i);
            for (Position p = 0; p <= rows[i].position; ++p) {
                state = mix(state, key(layer, rows[i].key_slot(p)));
            }
            store(hidden, i, state);
        }
    }
    static void keep_stacks(std::span<const Row> rows, std::span<float> hidden, int sublayer) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row& row = rows[i];
            const std::optional<std::size_t> place = row.stack_place(sublayer);
            if (!place) continue;
            const auto from = hidden.subspan(i * kFakeDim, kFakeDim);
            std::copy(from.begin(), from.end(), row.stack + *place * kFakeDim);
        }
    }
    void count_crossing(ConstHiddenRows given) {
        if (on_device && !given.on_device()) rows_crossed += given.size() / kFakeDim;
    }
    static std::uint64_t load(std::span<const float> hidden, std::size_t row) {
        std::uint64_t state = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            state |= static_cast<std::uint64_t>(hidden[row * kFakeDim + i]) << (16 * i);
        }
        return state;
    }
    static void store(std::span<float> hidden, std::size_t row, std::uint64_t state) {
        for (std::size_t i = 0; i < 4; ++i) {
            hidden[row * kFakeDim + i] = static_cast<float>((state >> (16 * i)) & 0xffffU);
        }
    }
    /// Head `ahead` looks so many tokens further than the next one.
    void find_candidates(int ahead,
                         std::span<const float> hidden,
                         int rows,
                         std::span<float> logits) const {
        for (int r = 0; r < rows; ++r) {
            const auto row = static_cast<std::size_t>(r);
            const std::uint64_t state = load(hidden, row);
            auto token = static_cast<int>(hidden[row * kFakeDim + 4]);
            for (int step = 0; step <= ahead; ++step) token = (token * 5 + 3) % 16;
            const std::uint64_t luck = mix(state, 0x6e55);
            const bool right = static_cast<double>(luck >> 40U) / 16777216.0 < candidate_right;
            if (!right) token = static_cast<int>(luck % kFakeVocab);
            const float sure = static_cast<float>(luck & 7U);
            for (int t = 0; t < kFakeVocab; ++t) {
                const std::uint64_t noise = mix(state, static_cast<std::uint64_t>(t)) >> 40U;
                logits[row * kFakeVocab + static_cast<std::size_t>(t)] =
                    static_cast<float>(noise) / 16777216.0F + (t == token ? 2.0F + sure : 0.0F);
            }
        }
    }
    [[nodiscard]] std::size_t place(int layer, KvSlot slot) const {
        PACE_CHECK(slot >= 0 && slot < kv_slots_, "a slot that does not exist");
        return static_cast<std::size_t>(layer) * static_cast<std::size_t>(kv_slots_) +
               static_cast<std::size_t>(slot);
    }
    std::uint64_t& key(int layer, KvSlot slot) { return keys_[place(layer, slot)]; }

    ModelConfig config_;
    int first_layer_;
    int last_layer_;
    std::int32_t kv_slots_;
    std::vector<std::uint64_t> keys_;     // [layers, slots]
    std::vector<std::uint64_t> newest_;   // [slots]: of rows as they ran last, at the adapter
    std::vector<std::uint64_t> adapted_;  // [slots]: that the adapter was given
};

}  // namespace paceline::testing
