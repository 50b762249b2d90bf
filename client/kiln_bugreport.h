/* kiln_bugreport.h: between kiln_bugreport.c and kiln_bugreport_text.c. */
#ifndef KILN_CLIENT_KILN_BUGREPORT_H
#define KILN_CLIENT_KILN_BUGREPORT_H

/* A program in C that compiles a unit as kilnd does, by libnvrtc; needs no header of CUDA. */
extern const char bugreport_nvrtc[];

#endif
