// Every kernel variant beside the base, in one process and on the same memory: base and variant are
// timed in turn several times, so that a change of clocks meets both. Each pair must have equal bits.
#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <functional>

#include "model/kernels/cuda/variant_words.hpp"

#include "bench/cuda/attention_desk.hpp"
#include "bench/cuda/chain.hpp"

namespace paceline::bench {
namespace {

using cuda::kNamedVariants;
using cuda::Variants;

constexpr int kRounds = 7;  // of base and variant

/// Of `given`, those of `usual`; all of them if there are none.
std::vector<int> chosen(const std::vector<int>& given, std::initializer_list<int> usual) {
    std::vector<int> found;
    for (const int value : given) {
        if (std::find(usual.begin(), usual.end(), value) != usual.end()) found.push_back(value);
    }
    return found.empty() ? given : found;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Seconds of one piece of work.
using Timed = std::function<double()>;

/// Adds lines to the table; unequal bits are a fault of the report.
class Comparison {
public:
    explicit Comparison(const Bench& bench) : bench_{bench} {}

    void compare(const std::string& variant,
                 const std::string& what,
                 const Timed& base,
                 const Timed& changed,
                 bool equal) {
        std::vector<double> ratios;
        std::vector<double> base_seconds;
        for (int round = 0; round < kRounds; ++round) {
            base_seconds.push_back(base());
            ratios.push_back(changed() / base_seconds.back());
        }
        const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
        bench_.report.figure("variant." + variant + "." + what, median(ratios));
        table_.rows.push_back({variant, what, microseconds(median(base_seconds)),
                               fixed(median(ratios), 3),
                               fixed(*least, 3) + " to " + fixed(*most, 3), equal ? "yes" : "NO"});
        if (!equal)
            bench_.report.fault("variants: " + variant + " changes bits of the base in " + what);
    }

    void finish() const { bench_.report.add(table_); }

private:
    const Bench& bench_;
    Table table_{
        fmt::format("Kernel variants beside the base, the device alone: medians of {} alternations",
                    kRounds),
        {"variant", "what.rows[.context]", "base µs", "time over base", "least to most",
         "equal bits"}};
};

void compare_products(const Bench& bench, ProductDesk& desk, Comparison& comparison) {
    const int times = 4 * bench.settings.times;
    for (const Product& product : layer_products(bench)) {
        for (const int rows : chosen(bench.settings.rows, {1, 8, 16})) {
            desk.set_rows(rows);
            const auto result = [&](const Variants& variants) {
                return desk
                    .result(product, choose_gemm(product.at(0),
                                                 {rows, desk.processors(), variants, desk.wgmma()}))
                    .checksum;
            };
            const std::uint64_t wanted = result({});
            const TimedWork base = desk.timed(product, times, {});
            for (const auto& [name, variants] : kNamedVariants) {
                const TimedWork changed = desk.timed(product, times, variants);
                comparison.compare(
                    std::string{name}, fmt::format("{}.{}", product.name(), rows),
                    [&] { return base.seconds(); }, [&] { return changed.seconds(); },
                    result(variants) == wanted);
            }
        }
    }
}

void compare_attention(const Bench& bench, ProductDesk& desk, Comparison& comparison) {
    for (const int context : chosen(bench.settings.contexts, {512, 2048})) {
        for (const int rows : chosen(bench.settings.rows, {1, 4, 8})) {
            desk.set_rows(rows);
            const AttentionDesk attention{bench, desk, context};
            // With the rotation in front of it: what early-launch changes.
            const auto timed = [&](const AttentionDesk::Planned& planned) {
                return TimedWork{desk.stream(), 4 * bench.settings.times, [&](int i) {
                                     attention.rotate(planned, i);
                                     attention.attend(planned, i);
                                 }};
            };
            const AttentionDesk::Planned base_plan = attention.planned({});
            const std::uint64_t wanted = attention.result(base_plan);
            const TimedWork base = timed(base_plan);
            for (const auto& [name, variants] : kNamedVariants) {
                const AttentionDesk::Planned plan = attention.planned(variants);
                const TimedWork changed = timed(plan);
                comparison.compare(
                    std::string{name}, fmt::format("attention.{}.{}", rows, context),
                    [&] { return base.seconds(); }, [&] { return changed.seconds(); },
                    attention.result(plan) == wanted);
            }
        }
    }
}

void compare_waves(const Bench& bench, CudaBackend& backend, Comparison& comparison) {
    Chain chain{backend};
    const int context = usual_context(bench.settings);
    chain.fill(context);
    for (const int rows : chosen(bench.settings.rows, {1, 8})) {
        const std::vector<Row> wave = chain.rows(context, rows);
        std::vector<float> hidden(static_cast<std::size_t>(rows) *
                                  static_cast<std::size_t>(backend.config().dim));
        const auto states = [&](const Variants& variants) {
            backend.set_variants(variants);
            backend.run_layers(wave, hidden, nullptr);  // launched, then recorded
            backend.run_layers(wave, hidden, nullptr);
            return hidden;
        };
        const auto timed = [&](const Variants& variants) {
            return [&backend, &wave, &bench, variants] {
                backend.set_variants(variants);
                return backend.wave_seconds(wave, bench.settings.times);
            };
        };
        const std::vector<float> wanted = states({});
        for (const auto& [name, variants] : kNamedVariants) {
            const std::vector<float> got = states(variants);
            const bool equal =
                std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)) == 0;
            comparison.compare(std::string{name}, fmt::format("wave.{}.{}", rows, context),
                               timed({}), timed(variants), equal);
        }
    }
}

}  // namespace

Status variants_section(const Bench& bench) {
    Result<CudaOptions> options = cuda_options(bench);
    if (!options) return options.error();
    Comparison comparison{bench};
    {
        const ModelConfig& config = bench.file.config();
        ProductDesk desk{bench, cuda::kWaveRows,
                         std::max(config.dim, config.q_dim() + 2 * config.kv_dim())};
        compare_products(bench, desk, comparison);
        compare_attention(bench, desk, comparison);
    }
    options.value().variants = {};
    Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(bench.file, options.value());
    if (!made) return made.error();
    compare_waves(bench, *made.value(), comparison);
    comparison.finish();
    return {};
}

}  // namespace paceline::bench
