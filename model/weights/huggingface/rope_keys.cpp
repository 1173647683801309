#include "model/weights/huggingface/rope_keys.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/weights/config_limits.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

constexpr JsonKeys::NumberRange kFactors{1, config_limits::kRopeFactorMax};
constexpr JsonKeys::NumberRange kScales{1e-3, 1e3};
constexpr JsonKeys::NumberRange kBetas{1e-3, 1e6};

constexpr const char* kOriginalContext = "original_max_position_embeddings";

/// The context before the extension; without the key that of the model.
int original_context(JsonKeys& scaling, const ModelConfig& config) {
    return scaling.int_or(kOriginalContext, config.context_length, {1, config_limits::kContextMax});
}

double mscale(double factor, double scale) {
    return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void read_yarn(JsonKeys& scaling, ModelConfig& config) {
    RopeConfig& rope = config.rope;
    rope.scaling = RopeScaling::Yarn;
    rope.original_context = original_context(scaling, config);
    const double extension = static_cast<double>(config.context_length) / rope.original_context;
    const double factor = scaling.has("factor") ? scaling.required_number("factor", kFactors)
                                                : std::max(extension, 1.0);
    rope.factor = static_cast<float>(factor);
    const auto beta = [&](const char* key, double fallback) {
        const double value = scaling.number_or(key, fallback, {0, kBetas.max});
        return static_cast<float>(value == 0.0 ? fallback : value);
    };
    rope.beta_fast = beta("beta_fast", 32.0);
    rope.beta_slow = beta("beta_slow", 1.0);
    const double scale = scaling.number_or("mscale", 0.0, {0, kScales.max});
    const double all = scaling.number_or("mscale_all_dim", 0.0, {0, kScales.max});
    // 0 is yarn's own formula, mscale(factor, 1).
    const double attention =
        scale != 0.0 && all != 0.0 ? mscale(factor, scale) / mscale(factor, all) : 0.0;
    const auto stated = scaling.find_number("attention_factor", kScales);
    rope.attention_factor = static_cast<float>(stated.value_or(attention));
    if (!scaling.bool_or("truncate", true)) {
        scaling.fail(Errc::Unsupported,
                     scaling.name("truncate") + " is false, which is not supported");
    }
}

void read_llama3(JsonKeys& scaling, ModelConfig& config) {
    RopeConfig& rope = config.rope;
    rope.scaling = RopeScaling::Factors;
    const double factor = scaling.required_number("factor", kFactors);
    const double low = scaling.required_number("low_freq_factor", kBetas);
    const double high = scaling.required_number("high_freq_factor", kBetas);
    const double context = original_context(scaling, config);
    if (scaling.status() && high <= low) {
        scaling.fail(Errc::BadFile, fmt::format("{} {} is not above {} {}",
                                                scaling.name("high_freq_factor"), number_text(high),
                                                scaling.name("low_freq_factor"), number_text(low)));
    }
    if (!scaling.status()) return;
    for (int i = 0; i < rope.dims; i += 2) {
        const double exponent = static_cast<double>(i) / rope.dims;
        const double wavelength =
            2.0 * std::numbers::pi * std::pow(static_cast<double>(rope.base), exponent);
        const double blend = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
        rope.factors.push_back(static_cast<float>(1.0 / ((1.0 - blend) / factor + blend)));
    }
}

std::vector<float> read_factors(JsonKeys& scaling, const char* key, int count) {
    const nlohmann::json* list = scaling.find(key);
    const auto pairs = static_cast<std::size_t>(count);
    if (list == nullptr || !list->is_array() || list->size() != pairs) {
        scaling.fail(Errc::BadFile,
                     fmt::format("{} must be a list of {} numbers", scaling.name(key), pairs));
        return {};
    }
    std::vector<float> factors;
    for (const nlohmann::json& factor : *list) {
        if (!factor.is_number() || !(factor.get<double>() >= 1e-4 && factor.get<double>() <= 1e6)) {
            scaling.fail(Errc::BadFile, scaling.name(key) + " holds " + json_text_of(factor) +
                                            "; possible are 0.0001 to 1e6");
            return {};
        }
        factors.push_back(factor.get<float>());
    }
    return factors;
}

/// The list for short texts counts first; the context is cut to the length that it is for.
void read_longrope(JsonKeys& keys, JsonKeys& scaling, ModelConfig& config, LongRope& long_rope) {
    RopeConfig& rope = config.rope;
    rope.original_context = original_context(keys.has(kOriginalContext) ? keys : scaling, config);
    rope.factors = read_factors(scaling, "short_factor", rope.dims / 2);
    std::vector<float> factors = read_factors(scaling, "long_factor", rope.dims / 2);
    if (!scaling.status()) return;
    if (config.context_length > rope.original_context)
        long_rope = {.factors = std::move(factors), .context = config.context_length};
    const double original = std::max(rope.original_context, 2);  // its logarithm is divided by
    const double extension =
        scaling.number_or("factor", config.context_length / original, kFactors);
    const double own =
        extension <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(extension) / std::log(original));
    rope.attention_factor = static_cast<float>(scaling.number_or("attention_factor", own, kScales));
    rope.scaling = RopeScaling::Factors;
    config.context_length = std::min(config.context_length, rope.original_context);
}

void read_scaling(JsonKeys& keys,
                  JsonKeys& scaling,
                  const std::string& type,
                  ModelConfig& config,
                  LongRope& long_rope) {
    if (type == "default" || type == "dynamic") {
        if (type == "dynamic") (void)scaling.required_number("factor", kFactors);
    } else if (type == "linear") {
        config.rope.factor = static_cast<float>(scaling.required_number("factor", kFactors));
        if (config.rope.factor != 1.0F) config.rope.scaling = RopeScaling::Linear;
    } else if (type == "yarn") {
        read_yarn(scaling, config);
    } else if (type == "llama3") {
        read_llama3(scaling, config);
    } else if (type == "longrope" || type == "su") {
        read_longrope(keys, scaling, config, long_rope);
    } else {
        scaling.fail(Errc::Unsupported,
                     "rope scaling " + paceline::quoted_text(type) + " (" +
                         scaling.name("rope_type") +
                         ") is not supported; linear, dynamic, yarn, llama3 and longrope are");
    }
}

/// The name that transformers 5 gives the object, else the older one.
const char* rope_key(const JsonKeys& keys) {
    return keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

}  // namespace

std::string unread_rope(JsonKeys& keys, const ModelConfig& config) {
    const nlohmann::json* rope = keys.find(rope_key(keys));
    if (rope == nullptr || !rope->is_object()) return {};
    std::string objects;
    for (const auto& [key, value] : rope->items()) {
        if (value.is_object())
            objects +=
                (objects.empty() ? "" : ", ") + visible(keys.name(rope_key(keys)) + "." + key);
    }
    if (objects.empty()) return {};
    return fmt::format(
        "{} is not read: as in transformers, this architecture has the values of its rope one "
        "level higher; rope_theta is {}, and the rope is {}",
        objects, number_text(static_cast<double>(config.rope.base)),
        config.rope.scaling == RopeScaling::None ? "not scaled" : "scaled");
}

std::string read_rope(JsonKeys& keys,
                      const FolderArchitecture& architecture,
                      ModelConfig& config,
                      LongRope& long_rope) {
    constexpr double kBase = 10000.0;
    constexpr JsonKeys::NumberRange kBases{1.001, 1e12};  // yarn divides by its logarithm
    JsonKeys scaling = keys.child(rope_key(keys));
    const double outer = keys.number_or("rope_theta", kBase, kBases);
    config.rope.base = static_cast<float>(scaling.number_or("rope_theta", outer, kBases));
    const double inner = scaling.number_or("partial_rotary_factor", 1.0, {0, 1});
    const double part = keys.number_or("partial_rotary_factor", inner, {0, 1});
    config.rope.dims = static_cast<int>(config.head_dim * part);
    if (architecture.partial_rotary) {
        if (config.rope.dims < 2 || config.rope.dims % 2 != 0) {
            keys.fail(Errc::BadFile,
                      fmt::format("partial_rotary_factor {} of {} dimensions is not an even number "
                                  "of them",
                                  number_text(part), config.head_dim));
        }
    } else if (part != 1.0) {
        keys.fail(Errc::Unsupported,
                  "partial_rotary_factor other than 1 is not supported with this architecture");
    }
    std::optional<std::string> type = scaling.find_text("rope_type");
    if (!type) type = scaling.find_text("type");
    if (!keys.status()) return {};
    const int stated = config.context_length;
    if (type == "yarn" && architecture.yarn_is_longrope) type = "longrope";
    read_scaling(keys, scaling, type.value_or("default"), config, long_rope);
    if (config.context_length < stated) {
        return fmt::format(
            "the context is {} of {} tokens: with a larger one (-c) other rope factors count, for "
            "short texts too (longrope)",
            config.context_length, stated);
    }
    if (type != "dynamic") return {};
    return fmt::format("the context ends at {} tokens, where dynamic rope scaling would begin",
                       config.context_length);
}

}  // namespace paceline::huggingface
