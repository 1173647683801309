// The studies of the dynamic programme.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "actors/self_draft/layer_skip_dp.hpp"
#include "ipc/base/check.hpp"

#include "bench/skip_sets/studies.hpp"

namespace paceline::skip_sets {
namespace {

constexpr std::size_t kSetsOfOneCall = 128;

/// Cosine to the whole model, and whether the same token is the likeliest.
struct Quality {
    double cosine = 0.0;
    bool right = false;
};

/// Sub-layers that both skip over those that either skips; 1 for two empty sets.
double jaccard(const SkipSet& one, const SkipSet& other) {
    int both = 0;
    int either = 0;
    for (int sublayer = 0; sublayer < 2 * one.layers(); ++sublayer) {
        both += one.skips(sublayer) && other.skips(sublayer) ? 1 : 0;
        either += one.skips(sublayer) || other.skips(sublayer) ? 1 : 0;
    }
    return either == 0 ? 1.0 : static_cast<double>(both) / either;
}

class Programmes {
public:
    Programmes(const StudyTask& task, const ProgrammeStudy& study) : task_{task}, study_{study} {}

    void run() {
        std::printf(
            "kind\tskipped\tdistance\tvalues\tmean_cosine\tright\tfresh_right\tjaccard\tbest_of_"
            "sets\t"
            "ms\n");
        for (std::size_t i = 0; i < task_.texts; ++i) {
            DecodedText text = task_.text_at(i);
            for (const int skipped : study_.skipped) of_text(text, skipped);
            if (study_.exhaustive_skip > 0) exhaustive(text);
        }
        print();
    }

private:
    /// What is printed of one kind: means.
    struct Line {
        std::string kind;
        int skipped = 0;
        int distance = -1;  // tokens since the set was chosen; -1: does not apply
        double cosine = 0.0;
        double right = 0.0;
        double fresh_right = 0.0;  // of the sets that were chosen at the same places
        double jaccard = 0.0;      // with them
        double best = 0.0;         // share of the places at which no other set had a greater cosine
        std::vector<double> milliseconds = {};
        int values = 0;
    };

    [[nodiscard]] LayerSkipDpOptions options(int skipped) const {
        return {.layers = task_.backend.config().layers,
                .skip = skipped,
                .keep_first = task_.keep_first,
                .keep_last = task_.keep_last};
    }

    Line& line(const std::string& kind, int skipped, int distance = -1) {
        for (Line& each : lines_) {
            if (each.kind == kind && each.skipped == skipped && each.distance == distance)
                return each;
        }
        Line fresh;
        fresh.kind = kind;
        fresh.skipped = skipped;
        fresh.distance = distance;
        lines_.push_back(fresh);
        return lines_.back();
    }

    void note(Line& line, const Quality& quality) {
        line.cosine += quality.cosine;
        line.right += quality.right ? 1.0 : 0.0;
        ++line.values;
    }

    /// Quality of each set for the row at `position`.
    std::vector<Quality> judge(DecodedText& text,
                               Position position,
                               const std::vector<SkipSet>& sets) {
        const auto dim = static_cast<std::size_t>(task_.backend.config().dim);
        const std::span<const float> wanted = text.stack(position).last(dim);
        const TokenId next = text.tokens()[static_cast<std::size_t>(position) + 1];
        std::vector<Quality> found;
        for (std::size_t begin = 0; begin < sets.size(); begin += kSetsOfOneCall) {
            std::vector<SublayerMask> masks;
            for (std::size_t i = begin; i < std::min(sets.size(), begin + kSetsOfOneCall); ++i)
                masks.push_back(sets[i].mask());
            const std::vector<float> hidden = text.without(position, masks);
            const std::vector<TokenId> tokens = text.likeliest(hidden);
            for (std::size_t i = 0; i < masks.size(); ++i) {
                const auto state = std::span{hidden}.subspan(i * dim, dim);
                found.push_back({cosine(state, wanted), tokens[i] == next});
            }
        }
        return found;
    }

    SkipSet programme(DecodedText& text, Position position, const LayerSkipDpOptions& options) {
        const LayerSkipDpResult result =
            choose_layers(text.stack(position), options, [&](int layer, std::span<float> states) {
                text.run_layer(position, layer, states);
                return true;
            });
        PACE_CHECK(result.done, "a programme that was not cancelled");
        return result.set;
    }

    double milliseconds_of(DecodedText& text, Position position, int skipped, bool batched) {
        const auto dim = static_cast<std::size_t>(task_.backend.config().dim);
        const auto begin = std::chrono::steady_clock::now();
        const LayerSkipDpResult result = choose_layers(
            text.stack(position), options(skipped), [&](int layer, std::span<float> states) {
                if (batched) {
                    text.run_layer(position, layer, states);
                    return true;
                }
                for (std::size_t at = 0; at < states.size(); at += dim)
                    text.run_layer(position, layer, states.subspan(at, dim));
                return true;
            });
        PACE_CHECK(result.done, "a programme that was not cancelled");
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - begin;
        return took.count();
    }

    SkipSet random_set(int skipped) {
        std::vector<int> free(static_cast<std::size_t>(task_.backend.config().layers -
                                                       task_.keep_first - task_.keep_last));
        std::iota(free.begin(), free.end(), task_.keep_first);
        std::shuffle(free.begin(), free.end(), random_);
        SkipSet set{task_.backend.config().layers};
        for (int i = 0; i < skipped; ++i) set.skip_layer(free[static_cast<std::size_t>(i)]);
        return set;
    }

    void of_text(DecodedText& text, int skipped) {
        std::vector<std::pair<Position, SkipSet>> chosen;
        for (Position p = text.first(); p < text.end(); p += study_.every)
            chosen.emplace_back(p, programme(text, p, options(skipped)));
        const SkipSet uniform = SkipSet::uniform(task_.backend.config().layers, 2 * skipped,
                                                 task_.keep_first, task_.keep_last);
        std::vector<Quality> fresh_quality;
        for (const auto& [position, set] : chosen) {
            std::vector<SkipSet> sets{set, uniform};
            for (int i = 0; i < study_.random_sets; ++i) sets.push_back(random_set(skipped));
            const std::vector<Quality> found = judge(text, position, sets);
            fresh_quality.push_back(found[0]);
            note(line("programme", skipped), found[0]);
            note(line("uniform", skipped), found[1]);
            const auto best = std::max_element(
                found.begin() + 2, found.end(),
                [](const Quality& a, const Quality& b) { return a.cosine < b.cosine; });
            for (auto each = found.begin() + 2; each != found.end(); ++each)
                note(line("random, mean", skipped), *each);
            if (best != found.end()) {
                note(line("random, best cosine", skipped), *best);
                line("programme", skipped).best += found[0].cosine >= best->cosine ? 1.0 : 0.0;
            }
            for (const bool batched : {true, false}) {
                line(batched ? "programme" : "programme, row by row", skipped)
                    .milliseconds.push_back(milliseconds_of(text, position, skipped, batched));
            }
        }
        // What a set is worth later: the pairs are as many tokens apart as their line says.
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            for (std::size_t apart = 1; i + apart < chosen.size(); apart *= 2) {
                const auto& [position, fresh] = chosen[i + apart];
                Line& old =
                    line("programme, older", skipped, static_cast<int>(apart) * study_.every);
                note(old, judge(text, position, {chosen[i].second}).front());
                old.jaccard += jaccard(chosen[i].second, fresh);
                old.fresh_right += fresh_quality[i + apart].right ? 1.0 : 0.0;
            }
        }
    }

    /// All sets of a problem that is small enough.
    void exhaustive(DecodedText& text) {
        const int layers = task_.backend.config().layers;
        const LayerSkipDpOptions small{.layers = layers,
                                       .skip = study_.exhaustive_skip,
                                       .keep_first = study_.exhaustive_first,
                                       .keep_last = study_.exhaustive_last};
        const int end = layers - study_.exhaustive_last;
        std::vector<SkipSet> sets;
        SkipSet set{layers};
        const std::function<void(int, int)> add = [&](int from, int left) {
            if (left == 0) sets.push_back(set);
            for (int layer = from; left > 0 && layer < end; ++layer) {
                const SkipSet before = set;
                set.skip_layer(layer);
                add(layer + 1, left - 1);
                set = before;
            }
        };
        add(study_.exhaustive_first, study_.exhaustive_skip);
        for (Position p = text.first(); p < text.end(); p += 4 * study_.every) {
            std::vector<SkipSet> all = sets;
            all.push_back(programme(text, p, small));
            const std::vector<Quality> found = judge(text, p, all);
            const auto best = std::max_element(
                found.begin(), found.end() - 1,
                [](const Quality& a, const Quality& b) { return a.cosine < b.cosine; });
            note(line("small problem: programme", small.skip), found.back());
            note(line("small problem: best of all sets", small.skip), *best);
            line("small problem: programme", small.skip).best +=
                found.back().cosine >= best->cosine - 1e-6 ? 1.0 : 0.0;
            for (auto each = found.begin(); each != found.end() - 1; ++each)
                note(line("small problem: mean of all sets", small.skip), *each);
        }
    }

    static double median(std::vector<double>& values) {
        if (values.empty()) return 0.0;
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        return *middle;
    }

    /// A column; "-" where the value means nothing.
    static void print(bool known, double value, int digits) {
        if (known) {
            std::printf("\t%.*f", digits, value);
        } else {
            std::printf("\t-");
        }
    }

    void print() {
        for (Line& each : lines_) {
            std::printf("%s\t%d\t%s\t%d", each.kind.c_str(), each.skipped,
                        each.distance < 0 ? "-" : std::to_string(each.distance).c_str(),
                        each.values);
            print(each.values > 0, each.cosine / each.values, 4);
            print(each.values > 0, each.right / each.values, 3);
            print(each.distance >= 0, each.fresh_right / each.values, 3);
            print(each.distance >= 0, each.jaccard / each.values, 3);
            print(each.best > 0.0, each.best / each.values, 3);
            print(!each.milliseconds.empty(), median(each.milliseconds), 2);
            std::printf("\n");
        }
    }

    const StudyTask& task_;
    const ProgrammeStudy& study_;
    std::vector<Line> lines_;
    std::mt19937_64 random_{1};
};

}  // namespace

void study_programme(const StudyTask& task, const ProgrammeStudy& study) {
    Programmes{task, study}.run();
}

}  // namespace paceline::skip_sets
