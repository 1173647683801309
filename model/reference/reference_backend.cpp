#include "model/reference/reference_backend.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>

#include "ipc/base/check.hpp"
#include "model/reference/attention.hpp"
#include "model/reference/matmul.hpp"
#include "model/reference/rms_norm.hpp"
#include "model/reference/rope.hpp"
#include "model/reference/row_contract.hpp"
#include "model/reference/swiglu.hpp"

namespace paceline {
namespace {

const char* name_of(KvType type) {
    switch (type) {
        case KvType::F32:
            return "f32";
        case KvType::F16:
            return "f16";
        case KvType::BF16:
            return "bf16";
    }
    return "?";
}

std::string describe_class(const ModelFile& file, KvType kv_type) {
    char text[96];
    std::snprintf(text, sizeof text, "reference weights=%016llx dtype=f32 kv=%s",
                  static_cast<unsigned long long>(file.fingerprint()), name_of(kv_type));
    return text;
}

std::span<float> row_of(std::span<float> matrix, std::size_t row, std::size_t width) {
    return matrix.subspan(row * width, width);
}

void add(std::span<float> residual, std::span<const float> update) {
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += update[i];
}

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

int end_of(const ReferenceOptions& options, const ModelConfig& config) {
    return options.last_layer < 0 ? config.layers : options.last_layer;
}

}  // namespace

ReferenceBackend::ReferenceBackend(const ModelFile& file, const ReferenceOptions& options)
    : config_{file.config()},
      first_layer_{options.first_layer},
      last_layer_{end_of(options, config_)},
      kv_slots_{options.kv_slots},
      final_head_{options.final_head},
      heads_{options.heads},
      equality_class_{describe_class(file, options.kv_type)},
      rope_{config_.rope},
      weights_{file, first_layer_, last_layer_,
               options.final_head || !options.heads.empty() || options.adapter.has_value()},
      kv_{options.kv_type, last_layer_ - first_layer_, kv_slots_, config_.kv_dim()},
      adapter_{options.adapter} {
    if (!adapter_) return;
    adapter_weights_.attn_norm = adapter_->attn_norm;
    adapter_weights_.q = adapter_->q;
    adapter_weights_.k = adapter_->k;
    adapter_weights_.v = adapter_->v;
    adapter_weights_.attn_out = adapter_->attn_out;
    adapter_kv_.emplace(options.kv_type, 1, kv_slots_, adapter_->kv_heads * adapter_->head_dim);
}

RunOutcome ReferenceBackend::run_layers(std::span<const Row> rows,
                                        HiddenRows states,
                                        const CancelToken* cancel) {
    const std::size_t dim = size_of(config_.dim);
    const std::span<float> hidden = states.host();
    PACE_CHECK(hidden.size() == rows.size() * dim, "hidden states are [rows, dim]");
    reference::check_rows(rows, config_, {first_layer_, last_layer_, kv_slots_});

    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (rows[r].first == 0 && !rows[r].given) embed(rows[r].token, row_of(hidden, r, dim));
    }
    for (int sublayer = 2 * first_layer_; sublayer < 2 * last_layer_; ++sublayer) {
        if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
        const int layer = sublayer / 2;
        const bool is_attention = sublayer % 2 == 0;
        for (std::size_t r = 0; is_attention && r < rows.size(); ++r) {
            if (!reference::runs(rows[r], sublayer)) continue;
            write_key_value(attention_of(layer), rows[r], row_of(hidden, r, dim));
        }
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const Row& row = rows[r];
            const std::span<float> residual = row_of(hidden, r, dim);
            if (reference::runs(row, sublayer)) {
                is_attention ? attend(attention_of(layer), row, residual)
                             : feed_forward(layer, residual);
            }
            if (const auto place = row.stack_place(sublayer))
                std::copy(residual.begin(), residual.end(), row.stack + *place * dim);
        }
    }
    return RunOutcome::Done;
}

void ReferenceBackend::embed(TokenId token, std::span<float> hidden) const {
    const std::size_t dim = size_of(config_.dim);
    const std::span<const float> row = weights_.embedding().subspan(size_of(token) * dim, dim);
    std::copy(row.begin(), row.end(), hidden.begin());
}

RunOutcome ReferenceBackend::run_adapter(std::span<const Row> rows,
                                         ConstHiddenRows states,
                                         HiddenRows adapted,
                                         const CancelToken* cancel) {
    PACE_CHECK(has_adapter(), "an adapter of this segment");
    const std::size_t dim = size_of(config_.dim);
    const std::span<const float> hidden = states.host();
    const std::span<float> out = adapted.host();
    PACE_CHECK(hidden.size() == rows.size() * dim && out.size() == hidden.size(),
               "hidden states and what comes of them are [rows, dim]");
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    const Attention adapter{adapter_weights_,
                            *adapter_kv_,
                            0,
                            {adapter_->heads, adapter_->kv_heads, adapter_->head_dim}};
    std::copy(hidden.begin(), hidden.end(), out.begin());
    for (std::size_t r = 0; r < rows.size(); ++r)
        write_key_value(adapter, rows[r], row_of(out, r, dim));
    for (std::size_t r = 0; r < rows.size(); ++r) attend(adapter, rows[r], row_of(out, r, dim));
    return RunOutcome::Done;
}

ReferenceBackend::Attention ReferenceBackend::attention_of(int layer) {
    return {weights_.layer(layer),
            kv_,
            layer - first_layer_,
            {config_.heads, config_.kv_heads, config_.head_dim}};
}

void ReferenceBackend::write_key_value(const Attention& of,
                                       const Row& row,
                                       std::span<const float> hidden) const {
    const reference::LayerWeights& weights = of.weights;
    std::vector<float> normed(hidden.size());
    std::vector<float> key(size_of(of.shape.kv_heads * of.shape.head_dim));
    std::vector<float> value(key.size());
    reference::rms_norm(hidden, weights.attn_norm, config_.norm_epsilon, normed);
    reference::matmul(weights.k, normed, weights.k_bias, key);
    reference::matmul(weights.v, normed, weights.v_bias, value);
    place_heads(key, weights.k_norm, row.position);
    of.kv.write(of.layer, row.slot, key, value);
}

void ReferenceBackend::attend(const Attention& of, const Row& row, std::span<float> hidden) const {
    const reference::LayerWeights& weights = of.weights;
    std::vector<float> normed(hidden.size());
    std::vector<float> query(size_of(of.shape.heads * of.shape.head_dim));
    reference::rms_norm(hidden, weights.attn_norm, config_.norm_epsilon, normed);
    reference::matmul(weights.q, normed, weights.q_bias, query);
    place_heads(query, weights.q_norm, row.position);

    std::vector<const float*> keys;
    std::vector<const float*> values;
    for (Position p = 0; p <= row.position; ++p) {
        keys.push_back(of.kv.key(of.layer, row.key_slot(p)));
        values.push_back(of.kv.value(of.layer, row.key_slot(p)));
    }
    std::vector<float> attended(query.size());
    reference::attention(of.shape, query, keys, values, attended);
    std::vector<float> update(hidden.size());
    reference::matmul(weights.attn_out, attended, {}, update);
    add(hidden, update);
}

void ReferenceBackend::feed_forward(int layer, std::span<float> hidden) const {
    const reference::LayerWeights& weights = weights_.layer(layer);
    std::vector<float> normed(hidden.size());
    std::vector<float> gate(size_of(config_.ffn_dim));
    std::vector<float> up(gate.size());
    std::vector<float> update(hidden.size());
    reference::rms_norm(hidden, weights.ffn_norm, config_.norm_epsilon, normed);
    reference::matmul(weights.gate, normed, {}, gate);
    reference::matmul(weights.up, normed, {}, up);
    reference::swiglu(gate, up, gate);
    reference::matmul(weights.down, gate, {}, update);
    add(hidden, update);
}

void ReferenceBackend::place_heads(std::span<float> heads,
                                   std::span<const float> norm,
                                   Position position) const {
    std::vector<float> cosines(size_of(rope_.pairs()));
    std::vector<float> sines(cosines.size());
    rope_.fill(position, cosines, sines);
    const std::size_t head_dim = size_of(config_.head_dim);
    for (std::size_t start = 0; start < heads.size(); start += head_dim) {
        const std::span<float> head = heads.subspan(start, head_dim);
        if (!norm.empty()) reference::rms_norm(head, norm, config_.norm_epsilon, head);
        reference::rope(head, config_.rope.pairing, cosines, sines);
    }
}

void ReferenceBackend::head(HeadId id, ConstHiddenRows states, int rows, std::span<float> logits) {
    PACE_CHECK(has_head(id), "a head of this segment");
    const std::span<const float> hidden = states.host();
    const std::size_t dim = size_of(config_.dim);
    const std::size_t vocab_size = size_of(config_.vocab_size);
    PACE_CHECK(rows >= 0 && hidden.size() == size_of(rows) * dim &&
                   logits.size() == size_of(rows) * vocab_size,
               "hidden states are [rows, dim], logits [rows, vocab_size]");
    HeadSpec spec;
    std::span<const float> norm = weights_.output_norm();
    if (id == HeadId::Adapter) {
        spec.tokens = adapter_->tokens;
        norm = adapter_->out_norm;
    } else if (id != HeadId::Final) {
        spec = heads_[static_cast<std::size_t>(id) - 1];
    }
    for (std::size_t r = 0; r < size_of(rows); ++r)
        head_row(spec, norm, hidden.subspan(r * dim, dim), row_of(logits, r, vocab_size));
}

void ReferenceBackend::head_listed(HeadId id,
                                   ConstHiddenRows hidden,
                                   int rows,
                                   std::span<float> logits) {
    const std::span<const TokenId> tokens = short_list(id);
    PACE_CHECK(!tokens.empty() && logits.size() == size_of(rows) * tokens.size(),
               "a head with a short list, logits [rows, listed tokens]");
    const std::size_t vocab_size = size_of(config_.vocab_size);
    std::vector<float> all(size_of(rows) * vocab_size);
    head(id, hidden, rows, all);
    for (std::size_t r = 0; r < size_of(rows); ++r) {
        for (std::size_t i = 0; i < tokens.size(); ++i)
            logits[r * tokens.size() + i] = all[r * vocab_size + size_of(tokens[i])];
    }
}

void ReferenceBackend::head_row(const HeadSpec& head,
                                std::span<const float> output_norm,
                                std::span<const float> hidden,
                                std::span<float> logits) const {
    std::vector<float> x(hidden.begin(), hidden.end());
    const auto norm = [&] { reference::rms_norm(x, output_norm, config_.norm_epsilon, x); };
    if (head.norm_first) norm();
    if (!head.transform.empty()) {
        const std::vector<float> from = x;
        reference::matmul(head.transform, from, {}, x);
        if (head.block == HeadBlock::Residual) {
            const std::vector<float> ones(x.size(), 1.0f);
            reference::swiglu(x, ones, x);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += from[i];
        }
    }
    if (!head.norm_first) norm();
    const std::span<const float> output = weights_.output_head();
    if (head.tokens.empty()) {
        reference::matmul(output, x, {}, logits);
        return;
    }
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
    for (const TokenId token : head.tokens) {
        reference::matmul(output.subspan(size_of(token) * x.size(), x.size()), x, {},
                          logits.subspan(size_of(token), 1));
    }
}

MemoryUse ReferenceBackend::memory_use() const {
    const std::uint64_t adapter = adapter_kv_ ? adapter_kv_->bytes() : 0;
    return {
        .weight_bytes = weights_.bytes(), .kv_bytes = kv_.bytes() + adapter, .workspace_bytes = 0};
}

}  // namespace paceline
