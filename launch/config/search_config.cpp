#include "launch/config/search_config.hpp"

#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

constexpr int kWindowMax = 128;
constexpr int kManyTrials = 1'000'000;

}  // namespace

std::vector<Field> fields_of(SearchConfig& search) {
    return {
        {"window", number(search.window, 1, kWindowMax),
         "`search`: tokens of the answer that a trial is measured on"},
        {"bayes_every", number(search.options.bayes_every, 0, kManyTrials),
         "`search`: every N-th trial is found by Bayesian optimisation; 0: none"},
        {"trials_max", number(search.options.trials_max, 1, kManyTrials),
         "`search`: trials at most"},
        {"tolerance", number(search.options.tolerance, 1, kManyTrials),
         "`search`: it ends after N trials without a better set"},
        {"matchness_stop", number(search.options.matchness_stop, 0, 1),
         "`search`: it ends with a set that predicts this share of the window's tokens"},
        {"acceptance_min", number(search.options.acceptance_min, 0, 1),
         "`search`: below this share of accepted tokens fewer sub-layers are skipped; 0: never"},
        {"state", TextField{&search.state},
         "`search`: a file that keeps what was found; it is read at the start and written during "
         "the run",
         "\"\": none"},
    };
}

Status check_search(const TomlTable& table, bool searches) {
    if (searches) return {};
    SearchConfig any;
    for (const Field& field : fields_of(any)) {
        if (table.has(field.key)) return table.error(field.key, "is for choose = \"search\"");
    }
    return {};
}

}  // namespace paceline
