#!/bin/sh
#SBATCH --job-name=--hold
