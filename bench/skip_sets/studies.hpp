// The studies of skip sets, on texts that a model decoded greedily. Each prints a table: a line of
// column names, then one record a line, separated by tabs.
//
//     programme   CLaSp's dynamic programme beside random sets, SWIFT's uniform set, and all sets
//                 of a small problem; what becomes of a set while the text goes on; time in one
//                 pass and row by row
//     uniform     how often uniform sets predict the text's next token, first or among the k
//                 likeliest
//     search      SWIFT's search: matchness of the best set over trials, one text after the other
#pragma once

#include <functional>
#include <vector>

#include "bench/skip_sets/decoded_text.hpp"

namespace paceline::skip_sets {

/// Decodes text i, which the backend's keys are of until the next call.
using TextAt = std::function<DecodedText(std::size_t index)>;

struct StudyTask {
    Backend& backend;
    std::size_t texts = 0;
    TextAt text_at = {};
    int keep_first = 1;
    int keep_last = 1;
};

struct ProgrammeStudy {
    std::vector<int> skipped{3, 5, 8, 14};  // layers
    int every = 8;                          // positions between two programmes
    int random_sets = 64;
    int exhaustive_first = 8;  // the small problem: sets of exhaustive_skip of the layers
    int exhaustive_last = 8;   // [exhaustive_first, layers - exhaustive_last)
    int exhaustive_skip = 3;   // 0: none
};
void study_programme(const StudyTask& task, const ProgrammeStudy& study);

struct UniformStudy {
    std::vector<double> ratios{0.05, 0.1, 0.2, 0.3, 0.45};
    int window = 32;
};
void study_uniform(const StudyTask& task, const UniformStudy& study);

struct SearchStudy {
    double ratio = 0.2;
    int window = 32;
    int bayes_every = 25;
    int trials = 50;  // of each text
    std::uint64_t seed = 1;
};
void study_search(const StudyTask& task, const SearchStudy& study);

}  // namespace paceline::skip_sets
