// The sub-layers that the CPU backend does not run for stale rows; the suite tests that other rows
// keep their bits.
#include <algorithm>

#include "tests/unit/backend/stale_rows.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kNever = StaleAfter::kNever;

TEST_CASE("a row that was stale before the call is not computed") {
    std::mt19937 rng{82};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = make_backend(file, {.threads = 2});
    feed_stale_prefix(*backend, rng);
    const StaleBatch batch(file.config(), rng, 3);
    const std::vector<float> whole = states_of(*backend, batch.rows);
    std::vector<std::byte> kept(backend->kv_bytes());
    backend->write_kv(batch.rows[1].slot, kept);

    const StaleAfter watch({kNever, 0, kNever});
    CancelToken token;
    token.watch_rows(&watch);
    std::vector<float> hidden(3 * dim);
    REQUIRE(backend->run_layers(batch.rows, hidden, &token) == RunOutcome::Done);
    CHECK(same_bits(std::span(hidden).first(dim), std::span(whole).first(dim)));
    CHECK_FALSE(same_bits(std::span(hidden).subspan(dim, dim), std::span(whole).subspan(dim, dim)));
    std::vector<std::byte> now(kept.size(), std::byte{1});
    backend->read_kv(batch.rows[1].slot, now);
    CHECK(now == kept);  // nothing was written into its slot
}

TEST_CASE("a row that dies in its first layer writes no keys in the layers after it") {
    std::mt19937 rng{84};
    const ModelFile file = open_fixture("llama-q4_1");
    for (const int threads : {1, 3}) {
        const auto backend = make_backend(file, {.threads = threads});
        feed_stale_prefix(*backend, rng);
        const StaleBatch batch(file.config(), rng, 5);
        const std::size_t per_layer =
            backend->kv_bytes() / static_cast<std::size_t>(file.config().layers);
        // The first look is before the call, the second one at the border before sub-layer 0: the
        // sub-layers from 1 on go without the row.
        const StaleAfter watch({kNever, kNever, kNever, 2, kNever});
        CancelToken token;
        token.watch_rows(&watch);
        std::vector<float> hidden(5 * static_cast<std::size_t>(file.config().dim));
        REQUIRE(backend->run_layers(batch.rows, hidden, &token) == RunOutcome::Done);
        for (std::size_t r : {std::size_t{2}, std::size_t{3}}) {
            std::vector<std::byte> kv(backend->kv_bytes());
            backend->read_kv(batch.rows[r].slot, kv);
            const auto written = [&](std::span<const std::byte> bytes) {
                return std::any_of(bytes.begin(), bytes.end(),
                                   [](std::byte b) { return b != std::byte{0}; });
            };
            CHECK(written(std::span(kv).first(per_layer)));
            CHECK(written(std::span(kv).subspan(per_layer)) == (r == 2));
        }
    }
}

}  // namespace
}  // namespace paceline
