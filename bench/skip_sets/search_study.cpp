// The studies of matchness: uniform sets, and SWIFT's search.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "actors/self_draft/skip_search.hpp"

#include "bench/skip_sets/studies.hpp"

namespace paceline::skip_sets {
namespace {

constexpr std::array<int, 4> kTops{1, 3, 5, 10};

/// Of `rows` tokens from `begin` on: how many are among the k likeliest, for each k.
struct Matches {
    int rows = 0;
    std::array<int, kTops.size()> within{};

    void add(const std::vector<int>& ranks) {
        rows += static_cast<int>(ranks.size());
        for (std::size_t k = 0; k < kTops.size(); ++k) {
            within[k] += static_cast<int>(std::count_if(ranks.begin(), ranks.end(),
                                                        [&](int rank) { return rank < kTops[k]; }));
        }
    }
    [[nodiscard]] double share(std::size_t k) const {
        return rows > 0 ? static_cast<double>(within[k]) / rows : 0.0;
    }
};

double matchness(DecodedText& text, Position begin, int rows, const SkipSet& set) {
    Matches matches;
    matches.add(text.ranks(begin, text.window(begin, rows, set.mask())));
    return matches.share(0);
}

/// Of the whole answer, window by window.
Matches of_answer(DecodedText& text, int window, const SkipSet& set) {
    Matches matches;
    const SublayerMask mask = set.mask();
    for (Position begin = text.first(); begin < text.end(); begin += window) {
        const int rows = std::min<int>(window, text.end() - begin);
        matches.add(text.ranks(begin, text.window(begin, rows, mask)));
    }
    return matches;
}

int count_of(const StudyTask& task, double ratio) {
    const int free = 2 * (task.backend.config().layers - task.keep_first - task.keep_last);
    return skipped_of(ratio, free);
}

}  // namespace

void study_uniform(const StudyTask& task, const UniformStudy& study) {
    std::vector<Matches> found(study.ratios.size());
    const int layers = task.backend.config().layers;
    for (std::size_t i = 0; i < task.texts; ++i) {
        DecodedText text = task.text_at(i);
        for (std::size_t r = 0; r < study.ratios.size(); ++r) {
            const SkipSet set = SkipSet::uniform(layers, count_of(task, study.ratios[r]),
                                                 task.keep_first, task.keep_last);
            const Matches matches = of_answer(text, study.window, set);
            found[r].rows += matches.rows;
            for (std::size_t k = 0; k < kTops.size(); ++k) found[r].within[k] += matches.within[k];
        }
    }
    std::printf("ratio\tsublayers\ttokens\ttop1\ttop3\ttop5\ttop10\n");
    for (std::size_t r = 0; r < study.ratios.size(); ++r) {
        std::printf("%.2f\t%d\t%d", study.ratios[r], count_of(task, study.ratios[r]),
                    found[r].rows);
        for (std::size_t k = 0; k < kTops.size(); ++k) std::printf("\t%.3f", found[r].share(k));
        std::printf("\n");
    }
}

void study_search(const StudyTask& task, const SearchStudy& study) {
    SkipSearchOptions options;
    options.layers = task.backend.config().layers;
    options.ratio = study.ratio;
    options.keep_first = task.keep_first;
    options.keep_last = task.keep_last;
    options.bayes_every = study.bayes_every;
    options.seed = study.seed;
    SkipSearch search{options};
    const SkipSet uniform = search.best();
    std::printf(
        "text\ttrials\ttrials_a_text\tratio\twindow\tbayes_every\t"
        "window_matchness\tanswer_matchness\tuniform_matchness\tms_a_trial\tset\n");
    for (std::size_t i = 0; i < task.texts; ++i) {
        DecodedText text = task.text_at(i);
        // A text that is shorter than a window has no trial.
        const int places = static_cast<int>(text.end() - text.first()) - study.window + 1;
        const auto began = std::chrono::steady_clock::now();
        int tried = 0;
        for (; places > 0 && tried < study.trials && search.searching(); ++tried) {
            const Position begin = text.first() + tried % places;
            const SkipSet trial = search.propose();
            const double of_trial = matchness(text, begin, study.window, trial);
            const double of_best = matchness(text, begin, study.window, search.best());
            search.judged(trial, of_trial, of_best);
        }
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - began;
        std::printf("%zu\t%d\t%d\t%.2f\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.1f\t%s\n", i + 1,
                    search.trials(), study.trials, study.ratio, study.window, study.bayes_every,
                    search.matchness(), of_answer(text, 32, search.best()).share(0),
                    of_answer(text, 32, uniform).share(0), tried > 0 ? took.count() / tried : 0.0,
                    search.best().text().c_str());
        std::fflush(stdout);
    }
}

}  // namespace paceline::skip_sets
