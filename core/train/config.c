#include "moelua/config.h"

void moe_block_config_init(moe_block_config *block) {
  *block = (moe_block_config){
      .size = sizeof *block,
      .rope_theta = 1e4,
      .ffn_kind = MOE_FFN_MOE,
      .score = MOE_SCORE_SOFTMAX,
      .routed_scale = 1,
      .bias_rate = 1e-3,
  };
}

void moe_train_config_init(moe_train_config *config) {
  *config = (moe_train_config){
      .size = sizeof *config,
      .model = {.size = sizeof config->model, .norm_eps = 1e-5, .init_std = 0.02},
      .layout = {.size = sizeof config->layout, .chunks = 1},
      .dispatch = {.size = sizeof config->dispatch},
      .optimizer = {.size = sizeof config->optimizer,
                    .lr = {.size = sizeof config->optimizer.lr,
                           .kind = MOE_LR_CONSTANT,
                           .peak = 3e-4},
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .decay = MOE_DECAY_MATRIX | MOE_DECAY_EMBEDDING,
                    .clip = 1},
      .dtype = MOE_F32,
      .micro_batch = 1,
      .global_batch = 1,
  };
}
