#include "model/weights/huggingface/folder_config.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/config_limits.hpp"
#include "model/weights/huggingface/rope_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using namespace config_limits;  // NOLINT(google-build-using-namespace): constants alone

std::string class_name_of(JsonKeys& keys) {
    const nlohmann::json* classes = keys.find("architectures");
    if (classes == nullptr || (classes->is_array() && classes->empty())) return {};
    if (classes->is_array() && classes->size() == 1 && (*classes)[0].is_string()) {
        return (*classes)[0].get<std::string>();
    }
    keys.fail(Errc::BadFile, "architectures is " + json_text_of(*classes) +
                                 "; it must be a list with the name of one class");
    return {};
}

const FolderArchitecture* choose_architecture(JsonKeys& keys) {
    const std::string class_name = class_name_of(keys);
    const std::string model_type = keys.find_text("model_type").value_or("");
    if (!keys.status()) return nullptr;
    if (class_name.empty() && model_type.empty()) {
        keys.fail(Errc::BadFile, "the keys architectures and model_type are missing");
        return nullptr;
    }
    const FolderArchitecture* found = find_architecture(class_name, model_type);
    if (found == nullptr) {
        keys.fail(
            Errc::Unsupported,
            fmt::format("architecture {} ({}) is not supported; supported: {}",
                        paceline::quoted_text(class_name.empty() ? model_type : class_name),
                        class_name.empty() ? "model_type" : "architectures", architecture_names()));
    } else if (!model_type.empty() && model_type != found->model_type) {
        // transformers goes by model_type: the class alone may be a name that was left behind.
        keys.fail(Errc::Unsupported,
                  fmt::format("model_type {} with the architecture {} is not supported",
                              paceline::quoted_text(model_type), found->class_name));
        return nullptr;
    }
    return found;
}

void refuse_what_is_no_switch(JsonKeys& keys) {
    if (const nlohmann::json* quantised = keys.find("quantization_config")) {
        std::string method = "unnamed";
        if (quantised->is_object() && quantised->contains("quant_method")) {
            method = json_text_of((*quantised)["quant_method"]);
        }
        keys.fail(Errc::Unsupported, "quantization_config: weights quantised by the method " +
                                         method + " are not supported; BF16, F16 and F32 are");
    }
    const std::string activation = keys.find_text("hidden_act").value_or("silu");
    if (activation != "silu") {
        keys.fail(Errc::Unsupported,
                  "hidden_act " + paceline::quoted_text(activation) + " is not supported; silu is");
    }
}

void read_widths(JsonKeys& keys, const FolderArchitecture& architecture, ModelConfig& config) {
    config.layers = keys.required_int("num_hidden_layers", {1, kLayersMax});
    config.dim = keys.required_int("hidden_size", {1, kDimMax});
    config.heads = keys.required_int("num_attention_heads", {1, kHeadsMax});
    const int kv_heads = architecture.kv_heads == 0 ? config.heads : architecture.kv_heads;
    config.kv_heads = keys.int_or("num_key_value_heads", kv_heads, {1, kHeadsMax});
    config.ffn_dim = keys.required_int("intermediate_size", {1, kFfnDimMax});
    config.vocab_size = keys.required_int("vocab_size", {1, kVocabMax});
    config.context_length = keys.required_int("max_position_embeddings", {1, kContextMax});
    config.norm_epsilon = static_cast<float>(keys.number_or("rms_norm_eps", 1e-6, {1e-12, 0.1}));
    config.tied_embeddings = keys.bool_or("tie_word_embeddings", false);
    if (!keys.status()) return;
    if (config.heads % config.kv_heads != 0) {
        keys.fail(Errc::BadFile,
                  fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}",
                              config.heads, config.kv_heads));
    }
    const int derived = config.dim % config.heads == 0 ? config.dim / config.heads : 0;
    config.head_dim = keys.int_or(
        "head_dim", architecture.head_dim == 0 ? derived : architecture.head_dim, {1, kHeadDimMax});
    if (config.head_dim == 0) {
        keys.fail(
            Errc::BadFile,
            fmt::format("hidden_size {} is no multiple of num_attention_heads {}, and head_dim "
                        "is missing",
                        config.dim, config.heads));
    } else if (config.head_dim % 2 != 0 || config.head_dim > kHeadDimMax) {
        keys.fail(Errc::BadFile,
                  fmt::format("heads of {} dimensions; possible are even numbers up to {}",
                              config.head_dim, kHeadDimMax));
    }
}

}  // namespace

Result<FolderConfig> read_config(JsonKeys& keys) {
    FolderConfig out;
    out.architecture = choose_architecture(keys);
    refuse_what_is_no_switch(keys);
    if (!keys.status()) return keys.status().error();
    const FolderArchitecture& architecture = *out.architecture;
    ModelConfig& config = out.model;
    config.architecture = architecture.architecture;
    config.qkv_bias = architecture.qkv_bias;
    config.qk_norm = architecture.qk_norm;
    read_widths(keys, architecture, config);
    if (!keys.status()) return keys.status().error();
    config.rope.pairing = architecture.pairing;
    if (std::string limit = read_rope(keys, architecture, config, out.long_rope); !limit.empty()) {
        if (out.long_rope.context != 0) out.long_rope.remark = limit;
        out.remarks.push_back(std::move(limit));
    }
    if (std::string unread = unread_rope(keys, config); !unread.empty())
        out.remarks.push_back(std::move(unread));
    const int stated_context = config.context_length;
    // A window cuts both contexts of longrope.
    config.context_length = std::max(stated_context, out.long_rope.context);
    if (architecture.read_more != nullptr) architecture.read_more(keys, config);
    if (out.long_rope.context != 0) out.long_rope.context = config.context_length;
    config.context_length = std::min(stated_context, config.context_length);
    if (!keys.status()) return keys.status().error();
    if (config.context_length < stated_context) {
        out.remarks.push_back(
            fmt::format("the context is {} of {} tokens: layers see no further back "
                        "(sliding_window)",
                        config.context_length, stated_context));
    }
    return out;
}

}  // namespace paceline::huggingface
