#include "launch/config/self_draft_config.hpp"

#include <algorithm>
#include <cmath>

#include "ipc/base/limits.hpp"
#include "launch/config/draft_config.hpp"
#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

constexpr int kManyVerdicts = 1'000'000;

}  // namespace

int SelfDraftConfig::exit_of(int of) const {
    const double wanted = exit < 1.0 ? exit * of : exit;
    return std::clamp(static_cast<int>(std::lround(wanted)), 1, std::max(of - 1, 1));
}

std::vector<Field> fields_of(SelfDraftConfig& c) {
    const std::vector<Field> first = {
        {"source", word(c.source, {"exit", "skip"}),
         "`exit`: the first layers and a head draft; `skip`: all layers but some sub-layers"},
        {"exit", number(c.exit, 0, 1'000'000),
         "`exit`: how many layers; below 1: that part of the depth"},
        {"head", word(c.head, {"logit-lens", "trained", "adapter"}),
         "`exit`: the target's own head, the one trained for the layer, or the trained `adapter`, "
         "which sees the text before (Kangaroo) and is refused if the part has none for the layer. "
         "Where there is none, the target's own; with `--lora` after the layer that the LoRA was "
         "made for"},
    };
    const std::vector<Field> rest = {
        {"short_list", number(c.short_list, 0, kVocabularyMax),
         "drafted tokens are among the first so many token ids, the more frequent ones of a BPE "
         "vocabulary; their probabilities, and those of the stop rules, are those among these. A "
         "trained head has a list of its own; 0: all"},
        {"choose", word(c.skip.choose, {"fixed", "programme", "search"}),
         "`skip`: what changes the set while decoding: nothing (`fixed`), CLaSp's dynamic "
         "`programme`, or SWIFT's `search`"},
        {"gamma", number(c.options.gamma, 1, kGammaMax), "tokens of a chain, at most"},
        {"confidence_min", number(c.options.confidence_min, 0, 1),
         "a chain ends after a token less probable than this"},
        {"reach_min", number(c.options.reach_min, 0, 1),
         "a chain ends after a path less probable than this (AdaSPEED's product)"},
        {"threshold_adapts", &c.options.threshold_adapts,
         "the threshold moves until `acceptance_target` of the drafted tokens are accepted "
         "(`reach_min` where it is 0.01 or more, else `confidence_min`)"},
        {"acceptance_target", number(c.options.acceptance_target, 0, 1),
         "`threshold_adapts`: the target"},
        {"thompson", &c.options.thompson,
         "the length is drawn: after each token the chain ends with probability 1 - theta, theta "
         "from a Beta distribution of accepted and rejected tokens (EESD); at most `gamma`"},
        {"thompson_decay", number(c.options.thompson_decay, 0, 1),
         "`thompson`: both counts are multiplied by this at each verdict; 1: nothing is forgotten"},
        {"probe", &c.probe,
         "`exit`: the trained probe's score takes the place of a token's probability"},
        {"tree", word(c.tree, {"none", "paper", "code"}),
         "`skip`: more candidates after doubtful tokens: 1, 3, 5 or 10 as in SWIFT's paper, or 3, "
         "5, 8 or 10 as in its code; needs `[schedule] shape = \"tree\"`"},
    };
    const std::vector<Field> last = {
        {"interval", number(c.skip.interval, 1, kManyVerdicts),
         "`search`, `programme`: verdicts between two trials or programmes"},
        {"optimise_share", number(c.search.optimise_share, 0, 1),
         "`search`, `programme`: share of the time that they may take"},
        {"auto_off", &c.options.auto_off,
         "decodes plainly while drafts cost more time than they save"},
    };
    return joined({first, fields_of(c.skip), rest, fields_of(c.search), last});
}

Status check_self_draft(const TomlTable& table, const SelfDraftConfig& config) {
    const bool skips = config.source == SelfDraftSource::Skip;
    for (const char* key : {"skip", "skip_ratio", "keep_first", "keep_last", "choose", "tree"}) {
        if (!skips && table.has(key)) return table.error(key, "is for source = \"skip\"");
    }
    for (const char* key : {"exit", "head", "probe"}) {
        if (skips && table.has(key)) return table.error(key, "is for source = \"exit\"");
    }
    if (config.probe && config.head == SelfDraftHead::Adapter)
        return table.error("probe", "is not for head = \"adapter\", which has no probes");
    const bool searches = skips && config.skip.choose == SkipChoice::Search;
    if (Status s = check_search(table, searches); !s.ok()) return s;
    for (const char* key : {"interval", "optimise_share"}) {
        const bool changes = skips && config.skip.choose != SkipChoice::Fixed;
        if (!changes && table.has(key))
            return table.error(key, "is for choose = \"search\" or \"programme\"");
    }
    if (config.options.threshold_adapts) {
        Status s = check_threshold(table, config.options.confidence_min, config.options.reach_min);
        if (!s.ok()) return s;
    }
    if (config.exit <= 0.0 || (config.exit > 1.0 && config.exit != std::floor(config.exit)))
        return table.error("exit", "must be a number of layers, or a part of the depth below 1");
    return skips ? check_skip(table, config.skip) : Status{};
}

}  // namespace paceline
