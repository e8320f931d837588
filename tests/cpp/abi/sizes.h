/* The size of each struct of the ABI, as this compiler sees it. */
#ifdef __cplusplus
extern "C"
#else
extern const unsigned SIZES[];
#endif
const unsigned SIZES[] = {
    sizeof(fl_tensor), sizeof(fl_launch), sizeof(fl_host), sizeof(fl_device_properties), sizeof(fl_device_api),
    sizeof(fl_memory_api), sizeof(fl_fault), sizeof(fl_stream_api), sizeof(fl_chip), sizeof(fl_claim),
    sizeof(fl_scalar), sizeof(fl_instr), sizeof(fl_program), sizeof(fl_copy_args), sizeof(fl_fill_args),
    sizeof(fl_pointwise_args), sizeof(fl_reduce_args), sizeof(fl_gemm_args), sizeof(fl_gather_args),
    sizeof(fl_scatter_args), sizeof(fl_random_args), sizeof(fl_softmax_args), sizeof(fl_softmax_backward_args),
    sizeof(fl_norm_args), sizeof(fl_norm_backward_args), sizeof(fl_batch_norm_args),
    sizeof(fl_batch_norm_backward_args), sizeof(fl_conv_args), sizeof(fl_pool_args), sizeof(fl_pool_backward_args),
    sizeof(fl_attention_args), sizeof(fl_attention_backward_args), sizeof(fl_multi_tensor_args), sizeof(fl_op_api), 0};
