// Rows that die while they run: the living keep their bits, whoever dies and whenever.
#include <algorithm>

#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

/// Rows that die after a number of looks at row 0, which never dies: sub-layer by sub-layer.
class Deaths final : public CancelToken::RowWatch {
public:
    explicit Deaths(std::vector<int> after) : after_{std::move(after)} {}
    [[nodiscard]] bool stale(std::size_t row) const override {
        if (row == 0) ++looks_;
        return after_[row] <= looks_;
    }
    [[nodiscard]] int looks() const { return looks_; }

private:
    std::vector<int> after_;
    mutable int looks_ = 0;
};

constexpr int kNever = 1 << 20;
constexpr int kPrefix = 40;

/// Continuations of one prefix side by side, so that no row reads what another one writes.
struct Wave {
    std::vector<KvSlot> slots = home_slots(kPrefix);
    std::vector<KvSlot> own;
    std::vector<Row> rows;

    Wave(const ModelConfig& config, std::mt19937& rng, int count) {
        for (int i = 0; i < count; ++i) own.push_back(kPrefix + 1 + 2 * i);
        for (int i = 0; i < count; ++i) {
            Row row;
            row.token = static_cast<TokenId>(rng() % static_cast<unsigned>(config.vocab_size));
            row.position = kPrefix;
            row.slot = own[static_cast<std::size_t>(i)];
            row.prefix_slots = slots.data();
            row.prefix_count = kPrefix;
            row.path_slots = &own[static_cast<std::size_t>(i)];
            row.path_count = 1;
            row.last = config.sublayers() - static_cast<int>(rng() % 2);
            rows.push_back(row);
        }
    }
};

TEST_CASE("whichever rows die at whichever border, the living keep their bits") {
    std::mt19937 rng{81};
    for (const char* fixture : {"llama-q4_1", "qwen3-bf16"}) {
        const ModelFile file = open_fixture(fixture);
        const ModelConfig& config = file.config();
        const auto dim = static_cast<std::size_t>(config.dim);
        for (const auto& [threads, rows_max] : {std::pair{1, 64}, {2, 64}, {3, 64}, {2, 7}}) {
            const auto backend = make_backend(file, {.rows_max = rows_max, .threads = threads});
            (void)sequence_logits(*backend, random_tokens(rng, config.vocab_size, kPrefix), 64);
            for (int round = 0; round < 25; ++round) {
                const int count = 1 + static_cast<int>(rng() % 40);
                const Wave wave(config, rng, count);
                std::vector<float> want(wave.rows.size() * dim);
                REQUIRE(backend->run_layers(wave.rows, want, nullptr) == RunOutcome::Done);

                std::vector<int> after;
                for (int i = 0; i < count; ++i) {
                    const bool dies = i > 0 && rng() % 2 == 0;
                    after.push_back(dies ? static_cast<int>(rng() % 12) : kNever);
                }
                const Deaths deaths(after);
                CancelToken token;
                token.watch_rows(&deaths);
                std::vector<float> got(want.size());
                REQUIRE(backend->run_layers(wave.rows, got, &token) == RunOutcome::Done);
                CHECK(deaths.looks() > 1);
                for (std::size_t r = 0; r < wave.rows.size(); ++r) {
                    if (after[r] != kNever) continue;
                    CAPTURE(threads);
                    CAPTURE(r);
                    CHECK(same_bits(std::span(got).subspan(r * dim, dim),
                                    std::span(want).subspan(r * dim, dim)));
                }
            }
        }
    }
}

TEST_CASE("a row that was stale before the call is not computed") {
    std::mt19937 rng{82};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = make_backend(file, {.threads = 2});
    (void)sequence_logits(*backend, random_tokens(rng, file.config().vocab_size, kPrefix), 64);
    const Wave wave(file.config(), rng, 3);
    std::vector<float> whole(3 * dim);
    REQUIRE(backend->run_layers(wave.rows, whole, nullptr) == RunOutcome::Done);
    std::vector<std::byte> kept(backend->kv_bytes());
    backend->write_kv(wave.rows[1].slot, kept);

    const Deaths deaths({kNever, 0, kNever});
    CancelToken token;
    token.watch_rows(&deaths);
    std::vector<float> hidden(3 * dim);
    REQUIRE(backend->run_layers(wave.rows, hidden, &token) == RunOutcome::Done);
    CHECK(same_bits(std::span(hidden).first(dim), std::span(whole).first(dim)));
    CHECK_FALSE(same_bits(std::span(hidden).subspan(dim, dim), std::span(whole).subspan(dim, dim)));
    std::vector<std::byte> now(kept.size(), std::byte{1});
    backend->read_kv(wave.rows[1].slot, now);
    CHECK(now == kept);  // nothing was written into its slot
}

TEST_CASE("a row that dies in its first layer writes no keys in the layers after it") {
    std::mt19937 rng{84};
    const ModelFile file = open_fixture("llama-q4_1");
    for (const int threads : {1, 3}) {
        const auto backend = make_backend(file, {.threads = threads});
        (void)sequence_logits(*backend, random_tokens(rng, file.config().vocab_size, kPrefix), 64);
        const Wave wave(file.config(), rng, 5);
        const std::size_t per_layer =
            backend->kv_bytes() / static_cast<std::size_t>(file.config().layers);
        // The first look is before the call, the second one at the border before sub-layer 0: the
        // sub-layers from 1 on go without the row.
        const Deaths deaths({kNever, kNever, kNever, 2, kNever});
        CancelToken token;
        token.watch_rows(&deaths);
        std::vector<float> hidden(5 * static_cast<std::size_t>(file.config().dim));
        REQUIRE(backend->run_layers(wave.rows, hidden, &token) == RunOutcome::Done);
        for (std::size_t r : {std::size_t{2}, std::size_t{3}}) {
            std::vector<std::byte> kv(backend->kv_bytes());
            backend->read_kv(wave.rows[r].slot, kv);
            const auto written = [&](std::span<const std::byte> bytes) {
                return std::any_of(bytes.begin(), bytes.end(),
                                   [](std::byte b) { return b != std::byte{0}; });
            };
            CHECK(written(std::span(kv).first(per_layer)));
            CHECK(written(std::span(kv).subspan(per_layer)) == (r == 2));
        }
    }
}

TEST_CASE("rows that die together with a cancelled call hang nobody") {
    std::mt19937 rng{83};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_backend(file, {.threads = 3});
    (void)sequence_logits(*backend, random_tokens(rng, file.config().vocab_size, kPrefix), 64);
    const Wave wave(file.config(), rng, 9);
    std::vector<float> hidden(wave.rows.size() * static_cast<std::size_t>(file.config().dim));
    for (int round = 0; round < 20; ++round) {
        const Deaths deaths(std::vector<int>(9, round % 7));
        CancelToken token;
        token.watch_rows(&deaths);
        if (round % 2 == 0) token.cancel();
        const RunOutcome outcome = backend->run_layers(wave.rows, hidden, &token);
        CHECK((outcome == RunOutcome::Cancelled) == (round % 2 == 0));
    }
}

}  // namespace
}  // namespace paceline
