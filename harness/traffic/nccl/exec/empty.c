// libcudart.so.12, libcudart.so.13 and libcuda.so.1 have names and versions only: the functions are in
// libplugfest-cuda.so, on which they depend.
typedef int not_empty;
