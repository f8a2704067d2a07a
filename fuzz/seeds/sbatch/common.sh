#!/bin/bash
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=4
#SBATCH -c 8 --mem=64G --gres=gpu:h100:8 -t 1-02:30:00
#SBATCH --array=0-99%8 --dependency=afterok:12:13 --signal=B:USR1@120
#SBATCH --output="%x-%j.out" -e 'a b' --mail-type=END,FAIL # more
#SBATCH --cpus-per-task 4 --exclusive --constraint=a|b
srun python train.py
#SBATCH --late
